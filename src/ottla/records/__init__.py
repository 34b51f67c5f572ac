"""Record batches: looking at them, making them, compressing them, and turning them into columns and back.

Where to start, by what you have in hand:

- bytes of batches, and only their headers matter: `batch` (a view per batch, walks over many, stamps, CRC-32C);
- single records to send: `builder`; a transaction marker: `control`; another codec for a batch: `recompress`;
- many records to read or write: `columns` and `columns_encode` (packed buffers, described in `packed`), `arrow` on top
  of them where pyarrow is installed, `aborted` for read_committed;
- a few records to look at, in a tool or a test: `decode` gives `record.Record` objects;
- headers of records to find by name, or to replace in a batch: `header_edit`; records to move into other batches:
  `picking`;
- a produced batch to check before it is appended: `Batch.passes`, and `survey` where that is not enough;
- a stored batch without some of its records: `compaction`, and `expiry` for topics with a TTL.

`layout` has the positions of the header fields; `compression` bounds the size of decompressed records, and `payload`
names the batch that cannot be decompressed. The compiled modules share their C in `wire.h` (numbers, headers),
`record.h` (one record) and `crc32c.h`, and their memory in `packed_buffer`. Nothing here does I/O, and nothing but
`arrow` needs pyarrow.
"""
