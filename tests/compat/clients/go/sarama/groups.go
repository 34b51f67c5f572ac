package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	loop "ottla/clients/commandloop"
)

// A member of a group; sarama runs a goroutine for each partition that it has. It knows no patterns and no seeking.
type member struct {
	group   sarama.ConsumerGroup
	log     *loop.MemberLog
	commits bool
	stop    context.CancelFunc
	done    chan struct{}

	lock    sync.Mutex
	session sarama.ConsumerGroupSession
}

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

var members = map[int]*member{}

func (p *program) groupCommands() map[string]func(*loop.Arguments) (loop.Answer, error) {
	return map[string]func(*loop.Arguments) (loop.Answer, error){
		"join_group":        p.joinGroup,
		"member":            p.member,
		"commit_offsets":    p.commitOffsets,
		"committed_offsets": p.committedOffsets,
		"leave_group":       p.leaveGroup,
	}
}

func (p *program) joinGroup(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Group()
	if err != nil {
		return nil, err
	}
	config := sarama.NewConfig()
	config.Consumer.Group.Session.Timeout = loop.SessionTimeoutMs * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = loop.HeartbeatMs * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[asked.Assignor]()}
	config.Consumer.Group.Rebalance.Retry.Backoff = loop.HeartbeatMs * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Metadata.RefreshFrequency = loop.MetadataAgeMs * time.Millisecond
	if asked.Reset == "earliest" {
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
	}
	if asked.Instance != nil {
		config.Consumer.Group.InstanceId = *asked.Instance
	}
	group, err := sarama.NewConsumerGroup([]string{p.bootstrap}, asked.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	found := &member{
		group: group, log: &loop.MemberLog{CodeOf: codeOf}, commits: asked.Commits, stop: stop, done: make(chan struct{}),
	}
	members[in.ID] = found
	go found.live(ctx, asked.Topics)
	return nil, nil
}

// A session ends with each eager rebalance, and when the broker is away; the next one begins at once.
func (found *member) live(ctx context.Context, topics []string) {
	defer close(found.done)
	for ctx.Err() == nil {
		err := found.group.Consume(ctx, topics, found)
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			found.log.Failed(err)
			return
		}
	}
}

// Setup is called when a session begins.
func (found *member) Setup(session sarama.ConsumerGroupSession) error {
	found.lock.Lock()
	defer found.lock.Unlock()
	found.session = session
	return nil
}

// Cleanup is called when it ends.
func (found *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition until it is taken away.
func (found *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	place := map[string][]int32{claim.Topic(): {claim.Partition()}}
	found.log.Assigned(place)
	for record := range claim.Messages() {
		found.log.Read(record.Topic, record.Partition, record.Offset)
		if !found.commits {
			continue
		}
		session.MarkMessage(record, "")
		if len(claim.Messages()) == 0 { // one commit for all that has come
			session.Commit()
		}
	}
	found.log.Revoked("revoked", place)
	return nil
}

func (p *program) member(in *loop.Arguments) (loop.Answer, error) {
	return members[in.ID].log.Answer(), nil
}

func (p *program) leaveGroup(in *loop.Arguments) (loop.Answer, error) {
	found := members[in.ID]
	found.stop()
	<-found.done
	return nil, found.group.Close()
}

func (p *program) commitOffsets(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Group()
	if err != nil {
		return nil, err
	}
	found := members[in.ID]
	found.lock.Lock()
	defer found.lock.Unlock()
	for _, each := range asked.Offsets {
		found.session.MarkOffset(each.Topic, each.Partition, each.Offset, each.Metadata)
	}
	found.session.Commit()
	return nil, nil
}

func (p *program) committedOffsets(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Group()
	if err != nil {
		return nil, err
	}
	found, err := p.admin.ListConsumerGroupOffsets(asked.Group, map[string][]int32{in.Topic: asked.Wanted})
	if err != nil {
		return nil, err
	}
	rows := [][3]any{}
	for _, partition := range asked.Wanted {
		each := found.GetBlock(in.Topic, partition)
		if each.Err != sarama.ErrNoError {
			return nil, each.Err
		}
		rows = append(rows, [3]any{partition, each.Offset, each.Metadata})
	}
	return loop.Answer{"offsets": rows}, nil
}
