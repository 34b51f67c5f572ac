// kafkajs as a member of groups: it reads by itself once it runs, and tells of each generation that it joins.
//
// It speaks the classic protocol, has no static members, and looks at a pattern only once.
'use strict'

const SESSION_TIMEOUT_MS = 15000
const HEARTBEAT_MS = 300
const METADATA_AGE_MS = 500
const FETCH_WAIT_MS = 200

const sorted = (places) => places.sort(([a, one], [b, other]) => (a === b ? one - other : a < b ? -1 : 1))

const placesOf = (assignment) =>
  sorted(Object.entries(assignment).flatMap(([topic, numbers]) => numbers.map((number) => [topic, number])))

// The commands about groups, by name; `codeOf` finds Kafka's code in an error.
module.exports = ({ kafka, admin, codeOf }) => {
  const members = new Map()

  const note = (member, kind, places) => {
    if (places.length > 0) member.events.push([kind, places, Date.now()])
    member.owned = kind === 'assigned' ? places : []
  }

  const join_group = async ({ id, group, topics, pattern, reset, commits }) => {
    const consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: SESSION_TIMEOUT_MS,
      heartbeatInterval: HEARTBEAT_MS,
      metadataMaxAge: METADATA_AGE_MS,
      maxWaitTimeInMs: FETCH_WAIT_MS,
    })
    const member = { consumer, owned: [], events: [], records: [], error: null }
    members.set(id, member)
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      note(member, 'revoked', member.owned)
      note(member, 'assigned', placesOf(payload.memberAssignment))
    })
    consumer.on(consumer.events.REBALANCING, () => note(member, 'revoked', member.owned))
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) member.error = { code: codeOf(payload.error), text: String(payload.error) }
    })
    await consumer.connect()
    const subscribed = topics === null ? [new RegExp(`^${pattern}`)] : topics
    await consumer.subscribe({ topics: subscribed, fromBeginning: reset === 'earliest' })
    await consumer.run({
      autoCommit: commits,
      eachBatch: async ({ batch, resolveOffset, heartbeat, isStale }) => {
        for (const record of batch.messages) {
          // A seek may have come in between.
          if (isStale()) break
          member.records.push([batch.topic, batch.partition, Number(record.offset)])
          resolveOffset(record.offset)
        }
        await heartbeat()
      },
    })
  }

  const member = async ({ id }) => {
    const { owned, events, records, error } = members.get(id)
    return { owned, events, records, failure: error }
  }

  const commit_offsets = async ({ id, offsets }) => {
    const rows = offsets.map(([topic, partition, offset, metadata]) => ({
      topic,
      partition,
      offset: String(offset),
      metadata,
    }))
    await members.get(id).consumer.commitOffsets(rows)
  }

  const committed_offsets = async ({ group, topic, wanted }) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    const rows = wanted.map((partition) => {
      const each = found.partitions.find((row) => row.partition === partition)
      return [partition, Number(each.offset), each.metadata ?? '']
    })
    return { offsets: rows }
  }

  const seek = async ({ id, topic, partition, offset }) => {
    members.get(id).consumer.seek({ topic, partition, offset: String(offset) })
  }

  const leave_group = async ({ id }) => {
    const member = members.get(id)
    await member.consumer.disconnect()
    note(member, 'revoked', member.owned)
  }

  return { join_group, member, commit_offsets, committed_offsets, seek, leave_group }
}
