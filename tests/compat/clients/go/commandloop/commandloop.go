// Package commandloop is the loop of a client program: JSON commands from stdin, answers to stdout.
//
// A program gives a table of functions by command. Bytes are base64 in the lines, which is what encoding/json does with
// []byte by itself: null is nil, and an empty string is an empty slice.
package commandloop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// Arguments of all commands; each uses the few that it needs.
type Arguments struct {
	Command         string            `json:"command"`
	ID              int               `json:"id"`
	Codec           string            `json:"codec"`
	Idempotent      *bool             `json:"idempotent"`
	RequestBytesMax *int32            `json:"request_bytes_max"`
	Topic           string            `json:"topic"`
	Records         []Record          `json:"records"`
	Positions       [][2]int64        `json:"positions"`
	Reset           string            `json:"reset"`
	Count           int               `json:"count"`
	TimeoutMs       int64             `json:"timeout_ms"`
	Partitions      int32             `json:"partitions"`
	Partition       int32             `json:"partition"`
	Offset          int64             `json:"offset"`
	Configs         map[string]string `json:"configs"`
	Kind            string            `json:"kind"`
	Name            string            `json:"name"`
	At              any               `json:"at"`
	Login           *Login            `json:"login"`

	line []byte
}

// Record to send, or one that was read.
type Record struct {
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header of a record; in the lines a pair of name and value.
type Header struct {
	Name  string
	Value []byte
}

// MarshalJSON writes the pair.
func (header Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{header.Name, header.Value})
}

// UnmarshalJSON reads the pair.
func (header *Header) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[2]any{&header.Name, &header.Value})
}

// Answer to a command.
type Answer map[string]any

// Chosen says whether the records name their partitions; a client's own choice and ours do not mix in one command.
func (arguments *Arguments) Chosen() bool {
	return len(arguments.Records) > 0 && arguments.Records[0].Partition != nil
}

// Run answers until the input ends; codeOf finds Kafka's code in an error, or nil.
func Run(commands map[string]func(*Arguments) (Answer, error), codeOf func(error) *int16) {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := answerTo(line, commands)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%T: %v\n", err, err)
			answer = Answer{"error": map[string]any{"code": codeOf(err), "text": err.Error()}}
		} else if answer == nil {
			answer = Answer{}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		os.Stdout.Write(append(text, '\n'))
	}
}

func answerTo(line []byte, commands map[string]func(*Arguments) (Answer, error)) (Answer, error) {
	arguments := Arguments{line: line}
	if err := json.Unmarshal(line, &arguments); err != nil {
		return nil, err
	}
	command, known := commands[arguments.Command]
	if !known {
		return nil, fmt.Errorf("unknown command: %s", arguments.Command)
	}
	return command(&arguments)
}
