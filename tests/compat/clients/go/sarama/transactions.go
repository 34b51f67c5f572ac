package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	loop "ottla/clients/commandloop"
)

const timeout = 30 * time.Second

// Producers and consumers are those of the program, so that it sends, polls and closes them.
func (p *program) transactionCommands() map[string]func(*loop.Arguments) (loop.Answer, error) {
	return map[string]func(*loop.Arguments) (loop.Answer, error){
		"open_transactional":     p.openTransactional,
		"begin_transaction":      p.beginTransaction,
		"commit_transaction":     p.commitTransaction,
		"abort_transaction":      p.abortTransaction,
		"send_offsets":           p.sendOffsets,
		"open_isolated_consumer": p.openIsolatedConsumer,
		"transform":              p.transform,
	}
}

func (p *program) initialised(asked loop.TransactionArguments) (sarama.SyncProducer, error) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true // what a SyncProducer asks for
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = asked.TransactionalID
	if asked.TransactionTimeoutMs != nil {
		config.Producer.Transaction.Timeout = time.Duration(*asked.TransactionTimeoutMs) * time.Millisecond
	}
	return sarama.NewSyncProducer([]string{p.bootstrap}, config)
}

func (p *program) openTransactional(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	producer, err := p.initialised(asked)
	if err == nil {
		p.producers[producerKey{in.ID, true}] = producer
	}
	return nil, err
}

func (p *program) transactional(in *loop.Arguments) sarama.SyncProducer {
	return p.producers[producerKey{in.ID, true}]
}

func (p *program) beginTransaction(in *loop.Arguments) (loop.Answer, error) {
	return nil, p.transactional(in).BeginTxn()
}

func (p *program) commitTransaction(in *loop.Arguments) (loop.Answer, error) {
	return nil, p.transactional(in).CommitTxn()
}

func (p *program) abortTransaction(in *loop.Arguments) (loop.Answer, error) {
	return nil, p.transactional(in).AbortTxn()
}

func (p *program) sendOffsets(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for _, each := range asked.Offsets {
		row := &sarama.PartitionOffsetMetadata{Partition: each.Partition, Offset: each.Offset, LeaderEpoch: -1}
		offsets[each.Topic] = append(offsets[each.Topic], row)
	}
	return nil, p.transactional(in).AddOffsetsToTxn(offsets, asked.Group)
}

func (p *program) openIsolatedConsumer(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	config := sarama.NewConfig()
	if asked.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if asked.FetchWaitMs != nil {
		config.Consumer.MaxWaitTime = time.Duration(*asked.FetchWaitMs) * time.Millisecond
	}
	return nil, p.consume(in, []string{p.bootstrap}, config)
}

func (p *program) transform(in *loop.Arguments) (loop.Answer, error) {
	asked, err := in.Transaction()
	if err != nil {
		return nil, err
	}
	producer, err := p.initialised(asked)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	config := sarama.NewConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup([]string{p.bootstrap}, asked.Group, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	taker := &taker{records: make(chan *sarama.ConsumerMessage)}
	ended := make(chan error, 1)
	go func() { ended <- group.Consume(ctx, []string{asked.Source}, taker) }()
	found := []*sarama.ConsumerMessage{}
	for len(found) < asked.Count {
		select {
		case record := <-taker.records:
			found = append(found, record)
		case err := <-ended:
			return nil, fmt.Errorf("%d of %d records came before the session ended: %w", len(found), asked.Count, err)
		}
	}
	err = writeTransformed(producer, taker, found, asked)
	cancel()
	<-ended
	return nil, err
}

func writeTransformed(
	producer sarama.SyncProducer, taker *taker, found []*sarama.ConsumerMessage, asked loop.TransactionArguments,
) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	metadata := &sarama.ConsumerGroupMetadata{
		GroupID: asked.Group, GenerationID: taker.session.GenerationID(), MemberID: taker.session.MemberID(),
	}
	for _, record := range found {
		value := append(record.Value[:len(record.Value):len(record.Value)], '!')
		message := &sarama.ProducerMessage{
			Topic: asked.Target, Partition: record.Partition, Key: encoder(record.Key), Value: encoder(value),
		}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
		if err := producer.AddMessageToTxnWithGroupMetadata(record, metadata, nil); err != nil {
			return err
		}
	}
	if asked.Commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

// taker gives the records of a group's session to one receiver.
type taker struct {
	records chan *sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

func (t *taker) Setup(session sarama.ConsumerGroupSession) error {
	t.session = session
	return nil
}

func (t *taker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t *taker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		select {
		case t.records <- record:
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}
