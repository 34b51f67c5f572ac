// What the samples of docs/queues.md take for granted; they are put where their names stand.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const kafka = new Kafka({ brokers: ['localhost:9092'], logLevel: logLevel.WARN })
const producer = kafka.producer()
const consumer = kafka.consumer({ groupId: 'billing' })
const checks = kafka.consumer({ groupId: 'payments' })
const pay = async () => true
const isPaid = async (order) => order !== 'order-unpaid'

const main = async (process) => {
  await producer.connect()
  await consumer.connect()
  await checks.connect()
// delay
// half
// answers
// retry
}

main(async (topic, message) => {
  console.log(`${topic} ${message.value}`)
  if (topic === 'orders') throw new Error('out of stock')
})
