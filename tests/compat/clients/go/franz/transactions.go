package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	loop "ottla/clients/commandloop"
)

var errAborted = errors.New("the session aborted what should have been committed")

// Producers and consumers are those of the program, so that it sends, polls and closes them. Offsets are committed in
// a transaction only by a session that consumes as a member of the group, so there is no send_offsets.
func (p *program) transactionCommands() map[string]func(*loop.Arguments) (loop.Answer, error) {
	return map[string]func(*loop.Arguments) (loop.Answer, error){
		"open_transactional":     p.openTransactional,
		"begin_transaction":      p.beginTransaction,
		"commit_transaction":     p.commitTransaction,
		"abort_transaction":      p.abortTransaction,
		"open_isolated_consumer": p.openIsolatedConsumer,
		"transform":              p.transform,
	}
}

func (p *program) openTransactional(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(p.bootstrap),
		kgo.TransactionalID(asked.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if asked.TransactionTimeoutMs != nil {
		timeout := time.Duration(*asked.TransactionTimeoutMs) * time.Millisecond
		options = append(options, kgo.TransactionTimeout(timeout))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	p.producers[producerKey{in.ID, true}] = client
	ctx, cancel := soon()
	defer cancel()
	_, _, err = client.ProducerID(ctx)
	return nil, err
}

func (p *program) transactional(in *loop.Arguments) *kgo.Client {
	return p.producers[producerKey{in.ID, true}]
}

func (p *program) beginTransaction(in *loop.Arguments) (loop.Answer, error) {
	return nil, p.transactional(in).BeginTransaction()
}

func (p *program) commitTransaction(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	if err := p.transactional(in).Flush(ctx); err != nil {
		return nil, err
	}
	return nil, p.transactional(in).EndTransaction(ctx, kgo.TryCommit)
}

func (p *program) abortTransaction(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	if err := p.transactional(in).AbortBufferedRecords(ctx); err != nil {
		return nil, err
	}
	return nil, p.transactional(in).EndTransaction(ctx, kgo.TryAbort)
}

func (p *program) openIsolatedConsumer(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	positions := map[int32]kgo.Offset{}
	for _, pair := range in.Positions {
		positions[int32(pair[0])] = kgo.NewOffset().AtStart()
		if pair[1] >= 0 {
			positions[int32(pair[0])] = kgo.NewOffset().At(pair[1])
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(p.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{in.Topic: positions}),
	}
	if asked.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if asked.FetchWaitMs != nil {
		options = append(options, kgo.FetchMaxWait(time.Duration(*asked.FetchWaitMs)*time.Millisecond))
	}
	client, err := kgo.NewClient(options...)
	if err == nil {
		p.consumers[in.ID] = &consumer{client: client}
	}
	return nil, err
}

func (p *program) transform(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(p.bootstrap),
		kgo.TransactionalID(asked.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx, cancel := soon()
	defer cancel()
	found, err := take(ctx, session, asked.Count)
	if err != nil {
		return nil, err
	}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	written := []*kgo.Record{}
	for _, record := range found {
		value := append(record.Value[:len(record.Value):len(record.Value)], '!')
		written = append(written, &kgo.Record{
			Topic: asked.Target, Partition: record.Partition, Key: record.Key, Value: value,
		})
	}
	if err := session.ProduceSync(ctx, written...).FirstErr(); err != nil {
		return nil, err
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(asked.Commit))
	if err == nil && committed != asked.Commit {
		err = errAborted
	}
	return nil, err
}

func take(ctx context.Context, session *kgo.GroupTransactSession, count int) ([]*kgo.Record, error) {
	found := []*kgo.Record{}
	for len(found) < count {
		fetches := session.PollRecords(ctx, count-len(found))
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d records came", len(found), count)
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}
