// kafkajs as a client program: JSON commands from stdin, answers to stdout.
//
// kafkajs consumes only in groups, so `poll` goes one floor down, to the parts that its consumer is made of: they decode
// what a broker sends, and leave out what was aborted, just as the consumer does. It has no log dirs and no timestamps of offsets.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const Batch = require('kafkajs/src/consumer/batch')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const zstd = require('@bokuweb/zstd-wasm')

// Answers own the stdout; what the library prints goes elsewhere.
console.log = console.info = console.debug = console.error

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])
const XERIAL_HEADER_BYTES = 16
const TOPIC_ALREADY_EXISTS = 36

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async (data) => {
    if (!data.subarray(0, 8).equals(XERIAL_MAGIC)) return Buffer.from(snappy.uncompress(data))
    const parts = []
    for (let at = XERIAL_HEADER_BYTES; at < data.length; ) {
      const size = data.readInt32BE(at)
      parts.push(Buffer.from(snappy.uncompress(data.subarray(at + 4, at + 4 + size))))
      at += 4 + size
    }
    return Buffer.concat(parts)
  },
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (data) => lz4.decompressFrame(data),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (data) => Buffer.from(zstd.decompress(data)),
})

const toBytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const toText = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))

const bootstrap = process.argv[2]
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.WARN })
const admin = kafka.admin()

// Kafka at the listener of a login, or at the program's own. It tries a refused TLS handshake again; once is enough.
const kafkaOf = (login) => {
  if (!login) return kafka
  const read = (path) => (path === null ? undefined : fs.readFileSync(path, 'utf8'))
  const { bootstrap, authority, certificate, key, mechanism, username, password, token } = login
  const ssl = { ca: [read(authority)], cert: read(certificate), key: read(key) }
  const oauthBearerProvider = async () => ({ value: read(token) })
  const secret = mechanism === 'OAUTHBEARER' ? { oauthBearerProvider } : { username, password }
  const sasl = mechanism === null ? undefined : { mechanism: mechanism.toLowerCase(), ...secret }
  return new Kafka({ brokers: [bootstrap], ssl, sasl, logLevel: logLevel.WARN, retry: { retries: 1 } })
}
const producers = new Map()
const consumers = new Map()

// Headers are an object in kafkajs: a name that occurs twice has an array.
const toHeaders = (pairs) => {
  const headers = {}
  for (const [name, text] of pairs) {
    const value = toBytes(text)
    headers[name] = name in headers ? [].concat(headers[name], [value]) : value
  }
  return headers
}

const fromHeaders = (headers) =>
  Object.entries(headers).flatMap(([name, value]) =>
    Array.isArray(value) ? value.map((each) => [name, toText(each)]) : [[name, toText(value)]]
  )

const open_producer = async ({ id, codec, idempotent, login }) => {
  const producer = kafkaOf(login).producer(idempotent === null ? {} : { idempotent })
  await producer.connect()
  producers.set(id, { producer, compression: CODECS[codec] })
}

const send = async ({ id, topic, records }) => {
  const { producer, compression } = producers.get(id)
  const messages = records.map((row) => ({
    key: toBytes(row.key),
    value: toBytes(row.value),
    headers: toHeaders(row.headers),
    ...(row.partition === null ? {} : { partition: row.partition }),
    ...(row.timestamp === null ? {} : { timestamp: String(row.timestamp) }),
  }))
  const answers = await producer.send({ topic, messages, compression })
  return { acks: await acksOf(topic, messages, answers) }
}

// kafkajs tells the first offset of each partition; its partitioner tells again which record went to which.
const acksOf = async (topic, messages, answers) => {
  const next = new Map(answers.map((each) => [each.partition, Number(each.baseOffset)]))
  if (next.size === 1) {
    const [[partition, base]] = next
    return messages.map((_, index) => [partition, base + index])
  }
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  const choose = require('kafkajs').Partitioners.DefaultPartitioner()
  return messages.map((message) => {
    const partition = message.partition ?? choose({ topic, partitionMetadata: topics[0].partitions, message })
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return [partition, offset]
  })
}

const close_producer = async ({ id }) => {
  await producers.get(id).producer.disconnect()
  producers.delete(id)
}

const open_consumer = async ({ id, topic, positions, login }) => {
  const symbol = Object.getOwnPropertySymbols(kafka).find((each) => each.description.endsWith('createCluster'))
  const cluster = kafkaOf(login)[symbol]({ metadataMaxAge: 300000, allowAutoTopicCreation: false, maxInFlightRequests: null })
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  const next = new Map()
  for (const [partition, offset] of positions) {
    if (offset >= 0) {
      next.set(partition, offset)
      continue
    }
    const partitions = [{ partition }]
    const [found] = await cluster.fetchTopicsOffset([{ topic, partitions, fromBeginning: offset === -2 }])
    next.set(partition, Number(found.partitions[0].offset))
  }
  consumers.set(id, { cluster, topic, next })
}

const fetchOnce = async ({ cluster, topic, next, committed = true, fetchWait = 200 }, rows, count) => {
  const partitions = [...next].map(([partition, offset]) => ({ partition, fetchOffset: String(offset), maxBytes: 1048576 }))
  const leaders = cluster.findLeaderForPartitions(topic, [...next.keys()])
  for (const [nodeId, led] of Object.entries(leaders)) {
    const broker = await cluster.findBroker({ nodeId })
    const wanted = partitions.filter((each) => led.includes(each.partition))
    const answer = await broker.fetch({
      maxWaitTime: fetchWait,
      isolationLevel: committed ? 1 : 0,
      topics: [{ topic, partitions: wanted }],
    })
    for (const found of answer.responses[0].partitions) {
      const batch = new Batch(topic, String(next.get(found.partition)), found)
      let taken = true
      for (const record of batch.messages) {
        taken = rows.length < count
        if (!taken) break
        next.set(found.partition, Number(record.offset) + 1)
        rows.push({
          partition: found.partition,
          offset: Number(record.offset),
          timestamp: Number(record.timestamp),
          key: toText(record.key),
          value: toText(record.value),
          headers: fromHeaders(record.headers),
        })
      }
      // Behind the last record there may be some that are left out.
      if (taken && !batch.isEmptyIncludingFiltered()) next.set(found.partition, Number(batch.lastOffset()) + 1)
    }
  }
}

const poll = async ({ id, count, timeout_ms }) => {
  const consumer = consumers.get(id)
  const rows = []
  const deadline = Date.now() + timeout_ms
  while (rows.length < count && Date.now() < deadline) {
    try {
      await fetchOnce(consumer, rows, count)
    } catch (error) {
      if (!error.retriable) throw error
      await consumer.cluster.refreshMetadata()
    }
  }
  return { records: rows }
}

const close_consumer = async ({ id }) => {
  await consumers.get(id).cluster.disconnect()
  consumers.delete(id)
}

const create_topic = async ({ topic, partitions, configs }) => {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const created = await admin.createTopics({
    topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
  })
  // It takes this one error for an answer.
  if (!created) throw Object.assign(new Error('the topic exists already'), { code: TOPIC_ALREADY_EXISTS })
}

const delete_topic = ({ topic }) => admin.deleteTopics({ topics: [topic] })

const list_topics = async () => ({ topics: await admin.listTopics() })

const describe_topic = async ({ topic }) => {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  const rows = topics[0].partitions.map((each) => [each.partitionId, each.leader, each.replicas, each.isr])
  return { partitions: rows.sort(([one], [other]) => one - other) }
}

const create_partitions = ({ topic, count }) => admin.createPartitions({ topicPartitions: [{ topic, count }] })

const describe_configs = async ({ kind, name }) => {
  const type = kind === 'broker' ? ConfigResourceTypes.BROKER : ConfigResourceTypes.TOPIC
  const { resources } = await admin.describeConfigs({ resources: [{ type, name }], includeSynonyms: false })
  return { configs: Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, each.configValue])) }
}

const alter_configs = async ({ topic, configs }) => {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
}

const find_offset = async ({ topic, partition, at }) => {
  const byTime = typeof at === 'number'
  const found = byTime ? await admin.fetchTopicOffsetsByTimestamp(topic, at) : await admin.fetchTopicOffsets(topic)
  const row = found.find((each) => each.partition === partition)
  return { offset: Number(at === 'earliest' ? row.low : row.offset), timestamp: -1 }
}

const delete_records = async ({ topic, partition, offset }) => {
  // It looks for the leader only among topics that it was asked about before.
  await admin.fetchTopicOffsets(topic)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
  return { low_watermark: (await find_offset({ topic, partition, at: 'earliest' })).offset }
}

const describe_cluster = async () => {
  const found = await admin.describeCluster()
  const brokers = found.brokers.map((each) => [each.nodeId, each.host, each.port])
  return { cluster_id: found.clusterId, controller: found.controller, brokers }
}

const COMMANDS = {
  open_producer, send, close_producer, open_consumer, poll, close_consumer, create_topic, delete_topic, list_topics,
  describe_topic, create_partitions, describe_configs, alter_configs, find_offset, delete_records, describe_cluster,
}

Object.assign(COMMANDS, require('./kafkajs_transactions.js')({ kafka, producers, consumers, open_consumer }))

const codeOf = (error) => {
  if (typeof error.code === 'number') return error.code
  const inner = error.cause ?? error.errors?.[0] ?? error.partitions?.[0]?.error
  return inner ? codeOf(inner) : null
}

Object.assign(COMMANDS, require('./kafkajs_groups.js')({ kafka, admin, codeOf }))

const main = async () => {
  await zstd.init()
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { command, ...rest } = JSON.parse(line)
    let answer
    try {
      answer = await COMMANDS[command](rest)
    } catch (error) {
      console.error(error)
      answer = { error: { code: codeOf(error), text: String(error) } }
    }
    process.stdout.write(JSON.stringify(answer === undefined || answer === true ? {} : answer) + '\n')
  }
  process.exit(0)
}

main()
