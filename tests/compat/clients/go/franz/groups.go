package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	loop "ottla/clients/commandloop"
)

// A member of a group polls all the time, and commits before a rebalance may go on.
type member struct {
	client *kgo.Client
	log    *loop.MemberLog
	done   chan struct{}
	stop   context.CancelFunc
}

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"uniform":            kgo.StickyBalancer, // what the broker calls uniform
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

var members = map[int]*member{}

func (p *program) groupCommands() map[string]func(*loop.Arguments) (loop.Answer, error) {
	return map[string]func(*loop.Arguments) (loop.Answer, error){
		"join_group":        p.joinGroup,
		"member":            p.member,
		"commit_offsets":    p.commitOffsets,
		"committed_offsets": p.committedOffsets,
		"seek":              p.seek,
		"leave_group":       p.leaveGroup,
	}
}

func (p *program) joinGroup(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Group()
	if err != nil {
		return nil, err
	}
	log := &loop.MemberLog{CodeOf: codeOf}
	save := func(client *kgo.Client) {
		if asked.Commits {
			ctx, cancel := soon()
			defer cancel()
			// What cannot be committed now is committed behind the rebalance.
			if err := client.CommitUncommittedOffsets(ctx); err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
				log.Failed(err)
			}
		}
	}
	client, err := kgo.NewClient(append(memberOptions(p.bootstrap, &asked),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			log.Assigned(partitions)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
			save(client)
			log.Revoked("revoked", partitions)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			log.Revoked("lost", partitions)
		}),
	)...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	found := &member{client: client, log: log, done: make(chan struct{}), stop: stop}
	members[in.ID] = found
	go found.live(ctx, save)
	return nil, nil
}

func memberOptions(bootstrap string, asked *loop.GroupArguments) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(asked.Group),
		kgo.Balancers(balancers[asked.Assignor]()),
		kgo.SessionTimeout(loop.SessionTimeoutMs * time.Millisecond),
		kgo.HeartbeatInterval(loop.HeartbeatMs * time.Millisecond),
		kgo.MetadataMinAge(loop.MetadataAgeMs * time.Millisecond),
		kgo.MetadataMaxAge(loop.MetadataAgeMs * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	}
	if asked.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if asked.Instance != nil {
		options = append(options, kgo.InstanceID(*asked.Instance))
	}
	if asked.Pattern != nil {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+*asked.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(asked.Topics...))
	}
	switch asked.Reset {
	case "latest":
		options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	case "none":
		options = append(options, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	default:
		options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	return options
}

func (found *member) live(ctx context.Context, save func(*kgo.Client)) {
	defer close(found.done)
	for ctx.Err() == nil {
		fetches := found.client.PollFetches(ctx)
		for _, problem := range fetches.Errors() {
			var known *kerr.Error
			isKnown := errors.As(problem.Err, &known)
			// Told to join again, a member does so by itself; the client calls that an error all the same.
			goesOn := isKnown && (known.Retriable || errors.Is(known, kerr.RebalanceInProgress))
			if ctx.Err() == nil && isKnown && !goesOn {
				found.log.Failed(problem.Err)
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			found.log.Read(record.Topic, record.Partition, record.Offset)
		})
		save(found.client)
		found.client.AllowRebalance()
	}
}

func (p *program) member(in *loop.Arguments) (loop.Answer, error) {
	return members[in.ID].log.Answer(), nil
}

func (p *program) leaveGroup(in *loop.Arguments) (loop.Answer, error) {
	found := members[in.ID]
	found.stop()
	<-found.done
	found.client.CloseAllowingRebalance()
	return nil, nil
}

func (p *program) seek(in *loop.Arguments) (loop.Answer, error) {
	to := kgo.EpochOffset{Epoch: -1, Offset: in.Offset}
	members[in.ID].client.SetOffsets(map[string]map[int32]kgo.EpochOffset{in.Topic: {in.Partition: to}})
	return nil, nil
}

func (p *program) commitOffsets(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Group()
	if err != nil {
		return nil, err
	}
	records := []*kgo.Record{}
	metadata := map[loop.Place]string{}
	for _, each := range asked.Offsets {
		records = append(records, &kgo.Record{
			Topic: each.Topic, Partition: each.Partition, Offset: each.Offset - 1, LeaderEpoch: -1,
		})
		metadata[loop.Place{Topic: each.Topic, Partition: each.Partition}] = each.Metadata
	}
	ctx, cancel := soon()
	defer cancel()
	marked := kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for _, topic := range request.Topics {
			for index := range topic.Partitions {
				text := metadata[loop.Place{Topic: topic.Topic, Partition: topic.Partitions[index].Partition}]
				topic.Partitions[index].Metadata = &text
			}
		}
		return nil
	})
	return nil, members[in.ID].client.CommitRecords(marked, records...)
}

func (p *program) committedOffsets(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Group()
	if err != nil {
		return nil, err
	}
	ctx, cancel := soon()
	defer cancel()
	found, err := p.admin.FetchOffsets(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	rows := [][3]any{}
	for _, partition := range asked.Wanted {
		each, known := found.Lookup(in.Topic, partition)
		if !known {
			each.Offset = kadm.Offset{At: -1}
		}
		rows = append(rows, [3]any{partition, each.At, each.Metadata})
	}
	return loop.Answer{"offsets": rows}, nil
}
