// The sr package of franz-go as a client program: JSON commands from stdin, answers to stdout.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"
)

// Arguments of all commands; each uses the few that it needs.
type arguments struct {
	Command   string    `json:"command"`
	Subject   string    `json:"subject"`
	Schema    sr.Schema `json:"schema"`
	ID        int       `json:"id"`
	Version   int       `json:"version"`
	Permanent bool      `json:"permanent"`
	Level     string    `json:"level"`
	Payload   []byte    `json:"payload"`
	Data      []byte    `json:"data"`
	Indexes   []int     `json:"indexes"`
}

type answer map[string]any

func main() {
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	if err != nil {
		panic(err)
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var given arguments
		result, err := answer(nil), json.Unmarshal(line, &given)
		if err == nil {
			result, err = run(client, &given)
		}
		if err != nil {
			result = failure(err)
		}
		written, err := json.Marshal(result)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(written))
	}
}

func failure(err error) answer {
	var refused *sr.ResponseError
	told := answer{"code": nil, "text": err.Error()}
	if errors.As(err, &refused) {
		told["code"] = refused.ErrorCode
	}
	return answer{"error": told}
}

func run(client *sr.Client, given *arguments) (answer, error) {
	ctx := context.Background()
	deletion := sr.SoftDelete
	if given.Permanent {
		deletion = sr.HardDelete
	}
	switch given.Command {
	case "register":
		if strings.HasPrefix(given.Subject, ":") {
			// CreateSchema looks for the version in the default context.
			id, err := client.RegisterSchema(ctx, given.Subject, given.Schema, -1, -1)
			return answer{"id": id}, err
		}
		created, err := client.CreateSchema(ctx, given.Subject, given.Schema)
		return answer{"id": created.ID}, err
	case "look_up":
		found, err := client.LookupSchema(ctx, given.Subject, given.Schema)
		return answer{"id": found.ID, "version": found.Version}, err
	case "versions":
		versions, err := client.SubjectVersions(ctx, given.Subject)
		return answer{"versions": versions}, err
	case "version":
		found, err := client.SchemaByVersion(ctx, given.Subject, given.Version)
		return answer{"id": found.ID, "schema": found.Schema}, err
	case "schema":
		found, err := client.SchemaByID(sr.WithParams(ctx, sr.Subject(given.Subject)), given.ID)
		return answer{"text": found.Schema}, err
	case "compatible":
		result, err := client.CheckCompatibility(ctx, given.Subject, -1, given.Schema)
		return answer{"compatible": result.Is}, err
	case "set_level":
		var level sr.CompatibilityLevel
		if err := level.UnmarshalText([]byte(given.Level)); err != nil {
			return nil, err
		}
		return answer{}, client.SetCompatibility(ctx, sr.SetCompatibility{Level: level}, given.Subject)[0].Err
	case "delete_version":
		return answer{}, client.DeleteSchema(ctx, given.Subject, given.Version, deletion)
	case "delete_subject":
		versions, err := client.DeleteSubject(ctx, given.Subject, deletion)
		return answer{"versions": versions}, err
	case "frame":
		data, err := serde(given).Encode(given.Payload)
		return answer{"data": data}, err
	case "unframe":
		return unframe(given)
	}
	return nil, fmt.Errorf("unknown command %q", given.Command)
}

// serde frames payloads that others encoded; what is inside is not the package's matter.
func serde(given *arguments) *sr.Serde {
	options := []sr.EncodingOpt{sr.EncodeFn(func(payload any) ([]byte, error) { return payload.([]byte), nil })}
	if len(given.Indexes) > 0 {
		options = append(options, sr.Index(given.Indexes...))
	}
	framing := sr.NewSerde()
	framing.Register(given.ID, []byte{}, options...)
	return framing
}

func unframe(given *arguments) (answer, error) {
	framing := sr.NewSerde()
	id, rest, err := framing.DecodeID(given.Data)
	if err != nil || len(given.Indexes) == 0 {
		return answer{"id": id, "payload": rest}, err
	}
	indexes, rest, err := framing.DecodeIndex(rest, len(given.Indexes))
	return answer{"id": id, "indexes": indexes, "payload": rest}, err
}
