package commandloop

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// What all members of groups have in common.
const (
	SessionTimeoutMs = 15000
	HeartbeatMs      = 300
	MetadataAgeMs    = 500
)

// GroupArguments are those of the commands about groups.
type GroupArguments struct {
	Group    string         `json:"group"`
	Topics   []string       `json:"topics"`
	Pattern  *string        `json:"pattern"`
	Protocol string         `json:"protocol"`
	Assignor string         `json:"assignor"`
	Instance *string        `json:"instance"`
	Reset    string         `json:"reset"`
	Commits  bool           `json:"commits"`
	Offsets  []MarkedOffset `json:"offsets"`
	Wanted   []int32        `json:"wanted"`
}

// MarkedOffset is an offset to commit with its metadata; in the lines a row.
type MarkedOffset struct {
	Topic     string
	Partition int32
	Offset    int64
	Metadata  string
}

// UnmarshalJSON reads the row.
func (each *MarkedOffset) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[4]any{&each.Topic, &each.Partition, &each.Offset, &each.Metadata})
}

// Group reads the arguments of a command about groups.
func (arguments *Arguments) Group() (found GroupArguments, err error) {
	err = json.Unmarshal(arguments.line, &found)
	return found, err
}

// Place is a partition; in the lines a pair of topic and number.
type Place struct {
	Topic     string
	Partition int32
}

// MarshalJSON writes the pair.
func (place Place) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{place.Topic, place.Partition})
}

// MemberLog keeps what happened to a member of a group, in order. It may be told from several goroutines.
type MemberLog struct {
	CodeOf func(error) *int16

	lock    sync.Mutex
	owned   map[Place]bool
	events  [][3]any
	records [][3]any
	problem error
}

// Assigned adds to what the member has.
func (log *MemberLog) Assigned(partitions map[string][]int32) {
	log.note("assigned", partitions, true)
}

// Revoked takes from it; kind is revoked or lost.
func (log *MemberLog) Revoked(kind string, partitions map[string][]int32) {
	log.note(kind, partitions, false)
}

// Read adds a record.
func (log *MemberLog) Read(topic string, partition int32, offset int64) {
	log.lock.Lock()
	defer log.lock.Unlock()
	log.records = append(log.records, [3]any{topic, partition, offset})
}

// Failed keeps the first thing that went wrong.
func (log *MemberLog) Failed(err error) {
	log.lock.Lock()
	defer log.lock.Unlock()
	if log.problem == nil {
		log.problem = err
	}
}

// Answer tells all of it.
func (log *MemberLog) Answer() Answer {
	log.lock.Lock()
	defer log.lock.Unlock()
	owned := []Place{}
	for place := range log.owned {
		owned = append(owned, place)
	}
	var problem any
	if log.problem != nil {
		problem = map[string]any{"code": log.CodeOf(log.problem), "text": log.problem.Error()}
	}
	return Answer{
		"owned":   ordered(owned),
		"events":  append([][3]any{}, log.events...),
		"records": append([][3]any{}, log.records...),
		"failure": problem,
	}
}

func (log *MemberLog) note(kind string, partitions map[string][]int32, own bool) {
	log.lock.Lock()
	defer log.lock.Unlock()
	if log.owned == nil {
		log.owned = map[Place]bool{}
	}
	places := []Place{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			place := Place{topic, number}
			places = append(places, place)
			if own {
				log.owned[place] = true
			} else {
				delete(log.owned, place)
			}
		}
	}
	if len(places) > 0 {
		log.events = append(log.events, [3]any{kind, ordered(places), time.Now().UnixMilli()})
	}
}

func ordered(places []Place) []Place {
	slices.SortFunc(places, func(one, other Place) int {
		return cmp.Or(cmp.Compare(one.Topic, other.Topic), cmp.Compare(one.Partition, other.Partition))
	})
	return places
}
