package main

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	loop "ottla/clients/commandloop"
)

// The address and a config to connect with: to the listener of a login, or to the program's own.
func (p *program) connected(login *loop.Login) ([]string, *sarama.Config, error) {
	config := sarama.NewConfig()
	if login == nil {
		return []string{p.bootstrap}, config, nil
	}
	tls, err := login.TLS()
	if err != nil {
		return nil, nil, err
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = tls
	if login.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
		config.Net.SASL.User = login.Username
		config.Net.SASL.Password = login.Password
	}
	switch login.Mechanism {
	case "SCRAM-SHA-256":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case "SCRAM-SHA-512":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	case "OAUTHBEARER":
		text, err := login.Token()
		if err != nil {
			return nil, nil, err
		}
		config.Net.SASL.TokenProvider = token(text)
	}
	return []string{login.Bootstrap}, config, nil
}

// sarama leaves the steps of SCRAM to others; this is the library of its examples.
type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (client *scramClient) Begin(user, password, authzID string) error {
	found, err := client.hash.NewClient(user, password, authzID)
	if err == nil {
		client.ClientConversation = found.NewConversation()
	}
	return err
}

type token string

func (text token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(text)}, nil
}
