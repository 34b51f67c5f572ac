// franz-go as a client program.
package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	loop "ottla/clients/commandloop"
)

const timeout = 75 * time.Second

type program struct {
	bootstrap string
	admin     *kadm.Client
	options   map[int][]kgo.Opt
	producers map[producerKey]*kgo.Client
	consumers map[int]*consumer
}

// One producer of a test is up to two clients: only another partitioner heeds partitions that we choose.
type producerKey struct {
	id     int
	chosen bool
}

type consumer struct {
	client *kgo.Client
	spare  []*kgo.Record
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		panic(err)
	}
	p := &program{
		bootstrap: os.Args[1],
		admin:     kadm.NewClient(client),
		options:   map[int][]kgo.Opt{},
		producers: map[producerKey]*kgo.Client{},
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
		"guess_version":     p.guessVersion,
	}
	maps.Copy(commands, p.groupCommands())
	maps.Copy(commands, p.transactionCommands())
	loop.Run(commands, codeOf)
}

func codeOf(err error) *int16 {
	var known *kerr.Error
	if errors.As(err, &known) {
		return &known.Code
	}
	return nil
}

// A client remembers metadata for some seconds; who looks whether something changed needs a new one.
func (p *program) fresh() (*kadm.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.bootstrap))
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), timeout)
}

func (p *program) openProducer(in *loop.Arguments) (loop.Answer, error) {
	options, err := p.connected(in.Login)
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.ProducerBatchCompression(codecs[in.Codec]))
	if in.Idempotent != nil && !*in.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if in.RequestBytesMax != nil {
		options = append(options, kgo.ProducerBatchMaxBytes(*in.RequestBytesMax))
	}
	p.options[in.ID] = options
	if in.Login != nil {
		return nil, p.tryLogin(options)
	}
	return nil, nil
}

func (p *program) producer(key producerKey) (*kgo.Client, error) {
	if client, open := p.producers[key]; open {
		return client, nil
	}
	options := p.options[key.id]
	if key.chosen {
		options = append(options[:len(options):len(options)], kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err == nil {
		p.producers[key] = client
	}
	return client, err
}

func (p *program) send(in *loop.Arguments) (loop.Answer, error) {
	client, err := p.producer(producerKey{in.ID, in.Chosen()})
	if err != nil {
		return nil, err
	}
	records := make([]*kgo.Record, len(in.Records))
	for index, each := range in.Records {
		record := &kgo.Record{Topic: in.Topic, Key: each.Key, Value: each.Value}
		if each.Partition != nil {
			record.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records[index] = record
	}
	ctx, cancel := soon()
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	acks := make([][2]int64, len(records))
	for index, record := range records {
		acks[index] = [2]int64{int64(record.Partition), record.Offset}
	}
	return loop.Answer{"acks": acks}, nil
}

func (p *program) closeProducer(in *loop.Arguments) (loop.Answer, error) {
	for _, chosen := range []bool{false, true} {
		key := producerKey{in.ID, chosen}
		if client, open := p.producers[key]; open {
			client.Close()
			delete(p.producers, key)
		}
	}
	delete(p.options, in.ID)
	return nil, nil
}

func (p *program) openConsumer(in *loop.Arguments) (loop.Answer, error) {
	reset := kgo.NewOffset().AtStart()
	if in.Reset == "latest" {
		reset = kgo.NewOffset().AtEnd()
	}
	positions := map[int32]kgo.Offset{}
	for _, pair := range in.Positions {
		switch pair[1] {
		case -2:
			positions[int32(pair[0])] = kgo.NewOffset().AtStart()
		case -1:
			positions[int32(pair[0])] = kgo.NewOffset().AtEnd()
		default:
			positions[int32(pair[0])] = kgo.NewOffset().At(pair[1])
		}
	}
	options, err := p.connected(in.Login)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(options,
		kgo.ConsumeResetOffset(reset),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{in.Topic: positions}),
	)...)
	if err == nil {
		p.consumers[in.ID] = &consumer{client: client}
	}
	return nil, err
}

func (p *program) poll(in *loop.Arguments) (loop.Answer, error) {
	found := p.consumers[in.ID]
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(in.TimeoutMs)*time.Millisecond)
	defer cancel()
	for len(found.spare) < in.Count {
		fetches := found.client.PollFetches(ctx)
		for _, problem := range fetches.Errors() {
			if !errors.Is(problem.Err, context.DeadlineExceeded) {
				return nil, problem.Err
			}
		}
		found.spare = append(found.spare, fetches.Records()...)
		if ctx.Err() != nil {
			break
		}
	}
	count := min(in.Count, len(found.spare))
	rows := make([]loop.Record, count)
	for index, record := range found.spare[:count] {
		timestamp := record.Timestamp.UnixMilli()
		row := loop.Record{
			Partition: &record.Partition, Offset: record.Offset, Timestamp: &timestamp,
			Key: record.Key, Value: record.Value, Headers: []loop.Header{},
		}
		for _, header := range record.Headers {
			row.Headers = append(row.Headers, loop.Header{Name: header.Key, Value: header.Value})
		}
		rows[index] = row
	}
	found.spare = found.spare[count:]
	return loop.Answer{"records": rows}, nil
}

func (p *program) closeConsumer(in *loop.Arguments) (loop.Answer, error) {
	p.consumers[in.ID].client.Close()
	delete(p.consumers, in.ID)
	return nil, nil
}

func (p *program) createTopic(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	configs := map[string]*string{}
	for name, value := range in.Configs {
		configs[name] = &value
	}
	_, err := p.admin.CreateTopic(ctx, in.Partitions, 1, configs, in.Topic)
	return nil, err
}

func (p *program) deleteTopic(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	_, err := p.admin.DeleteTopic(ctx, in.Topic)
	return nil, err
}

func (p *program) listTopics(*loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	admin, err := p.fresh()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	found, err := admin.ListTopics(ctx)
	return loop.Answer{"topics": found.Names()}, err
}

func (p *program) describeTopic(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	admin, err := p.fresh()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	found, err := admin.ListTopics(ctx, in.Topic)
	if err != nil {
		return nil, err
	}
	if err := found[in.Topic].Err; err != nil {
		return nil, err
	}
	rows := [][]any{}
	for _, each := range found[in.Topic].Partitions.Sorted() {
		rows = append(rows, []any{each.Partition, each.Leader, each.Replicas, each.ISR})
	}
	return loop.Answer{"partitions": rows}, nil
}

func (p *program) createPartitions(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	found, err := p.admin.UpdatePartitions(ctx, in.Count, in.Topic)
	if err == nil {
		err = found[in.Topic].Err
	}
	return nil, err
}

func (p *program) describeConfigs(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	var found kadm.ResourceConfigs
	var err error
	if in.Kind == "broker" {
		id, _ := strconv.Atoi(in.Name)
		found, err = p.admin.DescribeBrokerConfigs(ctx, int32(id))
	} else {
		found, err = p.admin.DescribeTopicConfigs(ctx, in.Name)
	}
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, each := range found[0].Configs {
		configs[each.Key] = each.Value
	}
	return loop.Answer{"configs": configs}, nil
}

func (p *program) alterConfigs(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	changes := []kadm.AlterConfig{}
	for name, value := range in.Configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	found, err := p.admin.AlterTopicConfigs(ctx, changes, in.Topic)
	if err == nil {
		err = found[0].Err
	}
	return nil, err
}

func (p *program) findOffset(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	var found kadm.ListedOffsets
	var err error
	switch at := in.At.(type) {
	case float64:
		found, err = p.admin.ListOffsetsAfterMilli(ctx, int64(at), in.Topic)
	case string:
		switch at {
		case "earliest":
			found, err = p.admin.ListStartOffsets(ctx, in.Topic)
		case "latest":
			found, err = p.admin.ListEndOffsets(ctx, in.Topic)
		default:
			found, err = p.admin.ListMaxTimestampOffsets(ctx, in.Topic)
		}
	}
	if err != nil {
		return nil, err
	}
	each, _ := found.Lookup(in.Topic, in.Partition)
	return loop.Answer{"offset": each.Offset, "timestamp": each.Timestamp}, each.Err
}

func (p *program) deleteRecords(in *loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: in.Topic, Partition: in.Partition, At: in.Offset})
	found, err := p.admin.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	each, _ := found.Lookup(in.Topic, in.Partition)
	return loop.Answer{"low_watermark": each.LowWatermark}, each.Err
}

func (p *program) describeCluster(*loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	found, err := p.admin.BrokerMetadata(ctx)
	brokers := [][]any{}
	for _, each := range found.Brokers {
		brokers = append(brokers, []any{each.NodeID, each.Host, each.Port})
	}
	return loop.Answer{"cluster_id": found.Cluster, "controller": found.Controller, "brokers": brokers}, err
}

func (p *program) logDirs(*loop.Arguments) (loop.Answer, error) {
	ctx, cancel := soon()
	defer cancel()
	found, err := p.admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	found.Each(func(folder kadm.DescribedLogDir) {
		folder.Topics.Each(func(each kadm.DescribedLogDirPartition) {
			sizes[each.Topic+"-"+strconv.Itoa(int(each.Partition))] = each.Size
		})
	})
	return loop.Answer{"sizes": sizes}, nil
}

// The version of Kafka that kcl and kminion show to operators.
func (p *program) guessVersion(*loop.Arguments) (loop.Answer, error) {
	brokers, err := p.admin.ApiVersions(context.Background())
	if err != nil {
		return nil, err
	}
	guesses := []string{}
	for _, broker := range brokers.Sorted() {
		if broker.Err != nil {
			return nil, broker.Err
		}
		guesses = append(guesses, broker.VersionGuess())
	}
	return loop.Answer{"guesses": guesses}, nil
}
