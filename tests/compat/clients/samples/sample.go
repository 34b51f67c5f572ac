// What the samples of docs/queues.md take for granted; they are put where their names stand.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx := context.Background()
	client, err := kgo.NewClient(kgo.SeedBrokers("localhost:9092"))
	if err != nil {
		log.Fatal(err)
	}
	if err := delay(ctx, client); err != nil {
		log.Fatal(err)
	}
	if err := half(ctx, client); err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(answers(ctx)) }()
	log.Fatal(retry(ctx))
}

func pay(order string) bool { return true }

func isPaid(order string) bool { return order != "order-unpaid" }

func process(record *kgo.Record) error {
	fmt.Println(record.Topic, string(record.Value))
	if record.Topic == "orders" {
		return errors.New("out of stock")
	}
	return nil
}

func delay(ctx context.Context, client *kgo.Client) error {
// delay
	return nil
}

func half(ctx context.Context, client *kgo.Client) error {
// half
	return nil
}

func answers(ctx context.Context) error {
// answers
}

func retry(ctx context.Context) error {
// retry
}
