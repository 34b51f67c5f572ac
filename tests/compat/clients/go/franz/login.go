package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	loop "ottla/clients/commandloop"
)

// The options to connect: to the listener of a login, or to the program's own.
func (p *program) connected(login *loop.Login) ([]kgo.Opt, error) {
	if login == nil {
		return []kgo.Opt{kgo.SeedBrokers(p.bootstrap)}, nil
	}
	config, err := login.TLS()
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{kgo.SeedBrokers(login.Bootstrap), kgo.DialTLSConfig(config), kgo.RequestRetries(1)}
	switch login.Mechanism {
	case "":
		return options, nil
	case "PLAIN":
		return append(options, kgo.SASL(plain.Auth{User: login.Username, Pass: login.Password}.AsMechanism())), nil
	case "SCRAM-SHA-256":
		auth := scram.Auth{User: login.Username, Pass: login.Password}
		return append(options, kgo.SASL(auth.AsSha256Mechanism())), nil
	case "SCRAM-SHA-512":
		auth := scram.Auth{User: login.Username, Pass: login.Password}
		return append(options, kgo.SASL(auth.AsSha512Mechanism())), nil
	case "OAUTHBEARER":
		token, err := login.Token()
		return append(options, kgo.SASL(oauth.Auth{Token: token}.AsMechanism())), err
	}
	return nil, fmt.Errorf("unknown mechanism: %s", login.Mechanism)
}

// A producer keeps its records while it cannot log in; this tells why it cannot.
func (p *program) tryLogin(options []kgo.Opt) error {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := soon()
	defer cancel()
	return client.Ping(ctx)
}
