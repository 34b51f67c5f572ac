// Confluent's registry client and serializers for JavaScript as a client program: JSON commands from stdin, answers to
// stdout.
'use strict'

const readline = require('node:readline')
const { create, createFileRegistry, createMutableRegistry, fromBinary, toJson } = require('@bufbuild/protobuf')
const { FileDescriptorProtoSchema, FileDescriptorSetSchema } = require('@bufbuild/protobuf/wkt')
const registry = require('@confluentinc/schemaregistry')

// Answers own the stdout; what the library prints goes elsewhere.
console.log = console.info = console.debug = console.error

const url = process.argv[2]
const newClient = () =>
  new registry.SchemaRegistryClient({ baseURLs: [url], retriesWaitMs: 100, maxRetries: 1, createAxiosDefaults: { proxy: false } })
const client = newClient()

// The only message of a file. Names for JSON are written out only to print it: they would be part of the schema.
const messageType = (descriptor, namesForJson = false) => {
  const file = fromBinary(FileDescriptorProtoSchema, Buffer.from(descriptor, 'base64'))
  if (namesForJson) for (const field of file.messageType[0].field) field.jsonName = field.name
  const files = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }))
  return files.getFile(file.name).messages[0]
}

const serializerOf = (given) => {
  const options = {
    autoRegisterSchemas: true,
    ...(given.place === 'header' ? { schemaIdSerializer: registry.HeaderSchemaIdSerializer } : {}),
  }
  const type = registry.SerdeType.VALUE
  switch (given.format) {
    case 'AVRO':
      return new registry.AvroSerializer(client, type, { ...options, autoRegisterSchemas: false, useLatestVersion: true })
    case 'JSON':
      return new registry.JsonSerializer(client, type, { ...options, autoRegisterSchemas: false, useLatestVersion: true })
    default:
      return new registry.ProtobufSerializer(client, type, {
        ...options,
        registry: createMutableRegistry(messageType(given.descriptor)),
      })
  }
}

const DESERIALIZERS = {
  AVRO: registry.AvroDeserializer,
  JSON: registry.JsonDeserializer,
  PROTOBUF: registry.ProtobufDeserializer,
}

const commands = {
  register: async ({ subject, schema }) => ({ id: await client.register(subject, schema, false) }),
  look_up: async ({ subject, schema }) => {
    const found = await newClient().getIdFullResponse(subject, schema, false)
    return { id: found.id, version: await newClient().getVersion(subject, schema, false) }
  },
  versions: async ({ subject }) => ({ versions: await client.getAllVersions(subject) }),
  version: async ({ subject, version }) => {
    const { id, ...schema } = await newClient().getSchemaMetadata(subject, version, false)
    return { id, schema }
  },
  schema: async ({ subject, id }) => ({ text: (await newClient().getBySubjectAndId(subject, id)).schema }),
  compatible: async ({ subject, schema }) => ({ compatible: await client.testSubjectCompatibility(subject, schema) }),
  set_level: async ({ subject, level }) => {
    await client.updateCompatibility(subject, level)
    return {}
  },
  delete_version: async ({ subject, version, permanent }) => {
    await client.deleteSubjectVersion(subject, version, permanent)
    return {}
  },
  delete_subject: async ({ subject, permanent }) => ({ versions: await client.deleteSubject(subject, permanent) }),
  serialize: async (given) => {
    const headers = {}
    const value = given.format === 'PROTOBUF' ? create(messageType(given.descriptor), given.value) : given.value
    const data = await serializerOf(given).serialize(given.topic, value, headers)
    const pairs = Object.entries(headers).map(([name, bytes]) => [name, Buffer.from(bytes).toString('base64')])
    return { data: data.toString('base64'), headers: pairs }
  },
  deserialize: async (given) => {
    const headers = Object.fromEntries(given.headers.map(([name, text]) => [name, Buffer.from(text, 'base64')]))
    const reading = new DESERIALIZERS[given.format](client, registry.SerdeType.VALUE, {})
    const value = await reading.deserialize(given.topic, Buffer.from(given.data, 'base64'), headers)
    return { value: given.format === 'PROTOBUF' ? toJson(messageType(given.descriptor, true), value) : value }
  },
}

const failure = (error) => ({ error: { code: error.errorCode ?? null, text: `${error.name}: ${error.message}` } })

const main = async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { command, ...given } = JSON.parse(line)
    let answer
    try {
      answer = await commands[command](given)
    } catch (error) {
      console.error(error.stack)
      answer = failure(error)
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
  process.exit(0)
}

main()
