// Transactions with kafkajs: producing, offsets inside them, and readers of either isolation.
//
// Producers and consumers are those of the program, so that it sends, polls and closes them.
'use strict'

const TIMEOUT_MS = 30000
const CONCURRENT_TRANSACTIONS = 51
const RETRY_MS = 20

// While the markers of the last transaction are being written a broker takes nothing for the next one. Other libraries
// ask again by themselves.
const patiently = async (step) => {
  const deadline = Date.now() + TIMEOUT_MS
  for (;;) {
    try {
      return await step()
    } catch (error) {
      if (error.code !== CONCURRENT_TRANSACTIONS || Date.now() > deadline) throw error
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    }
  }
}

module.exports = ({ kafka, producers, consumers, open_consumer }) => {
  const initialised = async ({ transactional_id, transaction_timeout_ms }) => {
    const producer = kafka.producer({
      transactionalId: transactional_id,
      maxInFlightRequests: 1,
      idempotent: true,
      ...(transaction_timeout_ms ? { transactionTimeout: transaction_timeout_ms } : {}),
    })
    await producer.connect()
    // Only the first transaction asks for the producer id; an empty one is not told to the broker.
    await (await producer.transaction()).abort()
    return producer
  }

  // What the program sends goes to the transaction that is open.
  const open_transactional = async (asked) => {
    const owner = await initialised(asked)
    const held = { owner, transaction: null }
    const producer = {
      send: (batch) => patiently(() => held.transaction.send(batch)),
      disconnect: () => owner.disconnect(),
    }
    producers.set(asked.id, { held, producer, compression: 0 })
  }

  const begin_transaction = async ({ id }) => {
    const { held } = producers.get(id)
    held.transaction = await held.owner.transaction()
  }

  const commit_transaction = ({ id }) => producers.get(id).held.transaction.commit()

  const abort_transaction = ({ id }) => producers.get(id).held.transaction.abort()

  const send_offsets = async ({ id, group, offsets }) => {
    const topics = new Map()
    for (const [topic, partition, offset] of offsets) {
      topics.set(topic, [...(topics.get(topic) ?? []), { partition, offset: String(offset) }])
    }
    const rows = [...topics].map(([topic, partitions]) => ({ topic, partitions }))
    const { transaction } = producers.get(id).held
    await patiently(() => transaction.sendOffsets({ consumerGroupId: group, topics: rows }))
  }

  const open_isolated_consumer = async ({ id, topic, positions, committed, fetch_wait_ms }) => {
    await open_consumer({ id, topic, positions })
    Object.assign(consumers.get(id), { committed, fetchWait: fetch_wait_ms ?? 200 })
  }

  const transform = async ({ transactional_id, group, source, target, count, commit }) => {
    const producer = await initialised({ transactional_id })
    const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 500 })
    await consumer.connect()
    try {
      await consumer.subscribe({ topics: [source], fromBeginning: true })
      const found = await take(consumer, count)
      const transaction = await producer.transaction()
      const messages = found.map(({ partition, message }) => ({
        partition,
        key: message.key,
        value: Buffer.concat([message.value, Buffer.from('!')]),
      }))
      await patiently(() => transaction.send({ topic: target, messages }))
      const next = new Map(found.map(({ partition, message }) => [partition, Number(message.offset) + 1]))
      const partitions = [...next].map(([partition, offset]) => ({ partition, offset: String(offset) }))
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
      await (commit ? transaction.commit() : transaction.abort())
    } finally {
      await consumer.disconnect()
      await producer.disconnect()
    }
  }

  // The first records that come to a member of the group; none of them is committed by it.
  const take = (consumer, count) =>
    new Promise((resolve, reject) => {
      const found = []
      const timer = setTimeout(() => reject(new Error(`${found.length} of ${count} records came`)), TIMEOUT_MS)
      const eachBatch = async ({ batch, resolveOffset }) => {
        for (const message of batch.messages.slice(0, count - found.length)) {
          found.push({ partition: batch.partition, message })
          resolveOffset(message.offset)
        }
        if (found.length < count) return
        clearTimeout(timer)
        resolve(found)
      }
      consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch }).catch(reject)
    })

  return {
    open_transactional, begin_transaction, commit_transaction, abort_transaction, send_offsets,
    open_isolated_consumer, transform,
  }
}
