// sarama as a client program. It tells no cluster id, no timestamps of offsets, and does not reset a lost position.
package main

import (
	"errors"
	"maps"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	loop "ottla/clients/commandloop"
)

type program struct {
	bootstrap string
	admin     sarama.ClusterAdmin
	settings  map[int]connection
	producers map[producerKey]sarama.SyncProducer
	consumers map[int]*consumer
}

type connection struct {
	addresses []string
	config    *sarama.Config
}

// One producer of a test is up to two: only another partitioner heeds partitions that we choose.
type producerKey struct {
	id     int
	chosen bool
}

type consumer struct {
	sarama.Consumer
	partitions []sarama.PartitionConsumer
	records    chan *sarama.ConsumerMessage
}

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() {
	admin, err := sarama.NewClusterAdmin([]string{os.Args[1]}, sarama.NewConfig())
	if err != nil {
		panic(err)
	}
	p := &program{
		bootstrap: os.Args[1],
		admin:     admin,
		settings:  map[int]connection{},
		producers: map[producerKey]sarama.SyncProducer{},
		consumers: map[int]*consumer{},
	}
	commands := map[string]func(*loop.Arguments) (loop.Answer, error){
		"open_producer":     p.openProducer,
		"send":              p.send,
		"close_producer":    p.closeProducer,
		"open_consumer":     p.openConsumer,
		"poll":              p.poll,
		"close_consumer":    p.closeConsumer,
		"create_topic":      p.createTopic,
		"delete_topic":      p.deleteTopic,
		"list_topics":       p.listTopics,
		"describe_topic":    p.describeTopic,
		"create_partitions": p.createPartitions,
		"describe_configs":  p.describeConfigs,
		"alter_configs":     p.alterConfigs,
		"find_offset":       p.findOffset,
		"delete_records":    p.deleteRecords,
		"describe_cluster":  p.describeCluster,
		"log_dirs":          p.logDirs,
	}
	maps.Copy(commands, p.groupCommands())
	maps.Copy(commands, p.transactionCommands())
	loop.Run(commands, codeOf)
}

func codeOf(err error) *int16 {
	var known sarama.KError
	if errors.As(err, &known) {
		code := int16(known)
		return &code
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return codeOf(topic.Err)
	}
	return nil
}

func (p *program) openProducer(in *loop.Arguments) (loop.Answer, error) {
	addresses, config, err := p.connected(in.Login)
	if err != nil {
		return nil, err
	}
	config.Producer.Return.Successes = true // what a SyncProducer asks for
	config.Producer.Compression = codecs[in.Codec]
	if in.Idempotent != nil && *in.Idempotent {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	if in.RequestBytesMax != nil {
		config.Producer.MaxMessageBytes = int(*in.RequestBytesMax)
	}
	p.settings[in.ID] = connection{addresses, config}
	return nil, nil
}

func (p *program) producer(key producerKey) (sarama.SyncProducer, error) {
	if producer, open := p.producers[key]; open {
		return producer, nil
	}
	settings := p.settings[key.id]
	config := *settings.config
	if key.chosen {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	producer, err := sarama.NewSyncProducer(settings.addresses, &config)
	if err == nil {
		p.producers[key] = producer
	}
	return producer, err
}

func (p *program) send(in *loop.Arguments) (loop.Answer, error) {
	producer, err := p.producer(producerKey{in.ID, in.Chosen()})
	if err != nil {
		return nil, err
	}
	messages := make([]*sarama.ProducerMessage, len(in.Records))
	for index, each := range in.Records {
		message := &sarama.ProducerMessage{Topic: in.Topic, Key: encoder(each.Key), Value: encoder(each.Value)}
		if each.Partition != nil {
			message.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages[index] = message
	}
	if err := producer.SendMessages(messages); err != nil {
		var all sarama.ProducerErrors
		if errors.As(err, &all) {
			return nil, all[0].Err
		}
		return nil, err
	}
	acks := make([][2]int64, len(messages))
	for index, message := range messages {
		acks[index] = [2]int64{int64(message.Partition), message.Offset}
	}
	return loop.Answer{"acks": acks}, nil
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func (p *program) closeProducer(in *loop.Arguments) (loop.Answer, error) {
	for _, chosen := range []bool{false, true} {
		key := producerKey{in.ID, chosen}
		if producer, open := p.producers[key]; open {
			producer.Close()
			delete(p.producers, key)
		}
	}
	delete(p.settings, in.ID)
	return nil, nil
}

func (p *program) openConsumer(in *loop.Arguments) (loop.Answer, error) {
	addresses, config, err := p.connected(in.Login)
	if err != nil {
		return nil, err
	}
	return nil, p.consume(in, addresses, config)
}

func (p *program) consume(in *loop.Arguments, addresses []string, config *sarama.Config) error {
	parent, err := sarama.NewConsumer(addresses, config)
	if err != nil {
		return err
	}
	found := &consumer{Consumer: parent, records: make(chan *sarama.ConsumerMessage)}
	p.consumers[in.ID] = found
	for _, pair := range in.Positions {
		partition, err := parent.ConsumePartition(in.Topic, int32(pair[0]), pair[1])
		if err != nil {
			return err
		}
		found.partitions = append(found.partitions, partition)
		go func() {
			for record := range partition.Messages() {
				found.records <- record
			}
		}()
	}
	return nil
}

func (p *program) poll(in *loop.Arguments) (loop.Answer, error) {
	deadline := time.After(time.Duration(in.TimeoutMs) * time.Millisecond)
	rows := []loop.Record{}
	for len(rows) < in.Count {
		select {
		case record := <-p.consumers[in.ID].records:
			rows = append(rows, rowOf(record))
		case <-deadline:
			return loop.Answer{"records": rows}, nil
		}
	}
	return loop.Answer{"records": rows}, nil
}

func rowOf(record *sarama.ConsumerMessage) loop.Record {
	timestamp := record.Timestamp.UnixMilli()
	row := loop.Record{
		Partition: &record.Partition, Offset: record.Offset, Timestamp: &timestamp,
		Key: record.Key, Value: record.Value, Headers: []loop.Header{},
	}
	for _, header := range record.Headers {
		row.Headers = append(row.Headers, loop.Header{Name: string(header.Key), Value: header.Value})
	}
	return row
}

func (p *program) closeConsumer(in *loop.Arguments) (loop.Answer, error) {
	found := p.consumers[in.ID]
	delete(p.consumers, in.ID)
	for _, partition := range found.partitions {
		partition.AsyncClose()
	}
	done := make(chan struct{})
	go func() { // A partition ends only once its last records are taken.
		for {
			select {
			case <-found.records:
			case <-done:
				return
			}
		}
	}()
	err := found.Close()
	close(done)
	return nil, err
}

func (p *program) createTopic(in *loop.Arguments) (loop.Answer, error) {
	configs := map[string]*string{}
	for name, value := range in.Configs {
		configs[name] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: in.Partitions, ReplicationFactor: 1, ConfigEntries: configs}
	return nil, p.admin.CreateTopic(in.Topic, detail, false)
}

func (p *program) deleteTopic(in *loop.Arguments) (loop.Answer, error) {
	return nil, p.admin.DeleteTopic(in.Topic)
}

func (p *program) listTopics(*loop.Arguments) (loop.Answer, error) {
	found, err := p.admin.ListTopics()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return loop.Answer{"topics": names}, err
}

func (p *program) describeTopic(in *loop.Arguments) (loop.Answer, error) {
	found, err := p.admin.DescribeTopics([]string{in.Topic})
	if err != nil {
		return nil, err
	}
	if found[0].Err != sarama.ErrNoError {
		return nil, found[0].Err
	}
	rows := [][]any{}
	for _, each := range found[0].Partitions {
		rows = append(rows, []any{each.ID, each.Leader, each.Replicas, each.Isr})
	}
	return loop.Answer{"partitions": rows}, nil
}

func (p *program) createPartitions(in *loop.Arguments) (loop.Answer, error) {
	return nil, p.admin.CreatePartitions(in.Topic, int32(in.Count), nil, false)
}

func (p *program) describeConfigs(in *loop.Arguments) (loop.Answer, error) {
	kind := sarama.TopicResource
	if in.Kind == "broker" {
		kind = sarama.BrokerResource
	}
	found, err := p.admin.DescribeConfig(sarama.ConfigResource{Type: kind, Name: in.Name})
	configs := map[string]string{}
	for _, each := range found {
		configs[each.Name] = each.Value
	}
	return loop.Answer{"configs": configs}, err
}

func (p *program) alterConfigs(in *loop.Arguments) (loop.Answer, error) {
	configs := map[string]*string{}
	for name, value := range in.Configs {
		configs[name] = &value
	}
	return nil, p.admin.AlterConfig(sarama.TopicResource, in.Topic, configs, false)
}

func (p *program) findOffset(in *loop.Arguments) (loop.Answer, error) {
	client, err := sarama.NewClient([]string{p.bootstrap}, sarama.NewConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	moment := sarama.OffsetNewest
	switch at := in.At.(type) {
	case float64:
		moment = int64(at)
	case string:
		if at == "earliest" {
			moment = sarama.OffsetOldest
		}
	}
	offset, err := client.GetOffset(in.Topic, in.Partition, moment)
	return loop.Answer{"offset": offset, "timestamp": -1}, err
}

func (p *program) deleteRecords(in *loop.Arguments) (loop.Answer, error) {
	if err := p.admin.DeleteRecords(in.Topic, map[int32]int64{in.Partition: in.Offset}); err != nil {
		return nil, err
	}
	found, err := p.findOffset(&loop.Arguments{Topic: in.Topic, Partition: in.Partition, At: "earliest"})
	return loop.Answer{"low_watermark": found["offset"]}, err
}

func (p *program) describeCluster(*loop.Arguments) (loop.Answer, error) {
	found, controller, err := p.admin.DescribeCluster()
	brokers := [][]any{}
	for _, each := range found {
		host, text, _ := net.SplitHostPort(each.Addr())
		port, _ := strconv.Atoi(text)
		brokers = append(brokers, []any{each.ID(), host, port})
	}
	return loop.Answer{"cluster_id": nil, "controller": controller, "brokers": brokers}, err
}

func (p *program) logDirs(*loop.Arguments) (loop.Answer, error) {
	brokers, _, err := p.admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	ids := []int32{}
	for _, each := range brokers {
		ids = append(ids, each.ID())
	}
	found, err := p.admin.DescribeLogDirs(ids)
	sizes := map[string]int64{}
	for _, folders := range found {
		for _, folder := range folders {
			for _, topic := range folder.Topics {
				for _, each := range topic.Partitions {
					sizes[topic.Topic+"-"+strconv.Itoa(int(each.PartitionID))] = each.Size
				}
			}
		}
	}
	return loop.Answer{"sizes": sizes}, err
}
