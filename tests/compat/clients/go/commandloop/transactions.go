package commandloop

import "encoding/json"

// TransactionArguments are those of the commands about transactions; `Transaction` reads them.
type TransactionArguments struct {
	TransactionalID      string            `json:"transactional_id"`
	TransactionTimeoutMs *int64            `json:"transaction_timeout_ms"`
	Group                string            `json:"group"`
	Offsets              []PartitionOffset `json:"offsets"`
	Committed            bool              `json:"committed"`
	FetchWaitMs          *int64            `json:"fetch_wait_ms"`
	Source               string            `json:"source"`
	Target               string            `json:"target"`
	Count                int               `json:"count"`
	Commit               bool              `json:"commit"`
}

// PartitionOffset is a position to commit; in the lines a row of topic, partition and offset.
type PartitionOffset struct {
	Topic     string
	Partition int32
	Offset    int64
}

// UnmarshalJSON reads the row.
func (each *PartitionOffset) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[3]any{&each.Topic, &each.Partition, &each.Offset})
}

// Transaction reads the arguments that only the commands about transactions have.
func (arguments *Arguments) Transaction() (found TransactionArguments, err error) {
	err = json.Unmarshal(arguments.line, &found)
	return found, err
}
