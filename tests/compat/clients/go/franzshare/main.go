// A share consumer of franz-go: accepts, releases, rejects and renews, and prints what it sees, a line for each step.
// Arguments: bootstrap servers, topic, group. The topic has six records, and the group delivers each at most twice.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 60 * time.Second

var failed atomic.Int64

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	topic := os.Args[2]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(topic),
		kgo.DefaultProduceTopic(topic),
		kgo.ShareGroup(os.Args[3]),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if !results.Ok() {
				fmt.Fprintln(os.Stderr, results.Error())
				failed.Add(1)
			}
		}),
	)
	must(err)
	accept, release, reject := kgo.AckAccept, kgo.AckRelease, kgo.AckReject
	step(ctx, client, "first", []kgo.AckStatus{accept, release, reject, release, accept, accept})
	step(ctx, client, "second", []kgo.AckStatus{release, release})
	// Both were delivered as often as they may be, so that only new records come.
	must(client.ProduceSync(ctx, kgo.StringRecord("6"), kgo.StringRecord("7")).FirstErr())
	third := poll(ctx, client, 2, func(record *kgo.Record, at int) {
		if at == 0 {
			record.Ack(kgo.AckRenew)
		} else {
			record.Ack(accept)
		}
	})
	print("third", third)
	must(client.FlushAcks(ctx))
	third[0].Ack(accept)
	must(client.FlushAcks(ctx))
	client.Close()
	fmt.Println("failed", failed.Load())
}

// Polls as many records as there are statuses, acknowledges each with its own, and waits for the answers.
func step(ctx context.Context, client *kgo.Client, name string, statuses []kgo.AckStatus) {
	records := poll(ctx, client, len(statuses), func(record *kgo.Record, at int) { record.Ack(statuses[at]) })
	print(name, records)
	must(client.FlushAcks(ctx))
}

// Polls until there are this many records. Each is acknowledged before the next poll would accept it.
func poll(ctx context.Context, client *kgo.Client, count int, acknowledge func(*kgo.Record, int)) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollRecords(ctx, count-len(found))
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			acknowledge(record, len(found))
			found = append(found, record)
		})
	}
	return found
}

func print(name string, records []*kgo.Record) {
	words := []string{}
	for _, record := range records {
		words = append(words, fmt.Sprintf("%d=%s#%d", record.Offset, record.Value, record.DeliveryCount()))
	}
	slices.Sort(words)
	fmt.Println(name, strings.Join(words, " "))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
