/* From which version on each API's requests are flexible, and the request header that follows from it.
 *
 * Header version 1 is api key, version, correlation id and client id; version 2 adds tagged fields. The client id stays
 * a string with a 16-bit length in both.
 */
#ifndef OTTLA_PROTOCOL_REQUEST_HEADER_H
#define OTTLA_PROTOCOL_REQUEST_HEADER_H

#include "reader.h"

enum {
    OTTLA_LENGTH_BYTES = 4,
    /* With a null client id. */
    OTTLA_HEADER_BYTES_MIN = 10,
    OTTLA_API_VERSIONS = 18,
    OTTLA_API_VERSIONS_HIGHEST = 4,
    OTTLA_API_COUNT = 95,
};

/* NEVER: all versions have header version 1. GONE: keys that no broker of today answers. */
#define NEVER 0x7fff
#define GONE -1
static const int16_t ottla_flexible_from[OTTLA_API_COUNT] = {
    /*  0 Produce, Fetch, ListOffsets, Metadata */ 9, 12, 6, 9,
    /*  4 between brokers of old */ GONE, GONE, GONE, GONE,
    /*  8 OffsetCommit, OffsetFetch, FindCoordinator */ 8, 6, 3,
    /* 11 JoinGroup, Heartbeat, LeaveGroup, SyncGroup */ 6, 4, 4, 4,
    /* 15 DescribeGroups, ListGroups, SaslHandshake, ApiVersions */ 5, 3, NEVER, 3,
    /* 19 CreateTopics, DeleteTopics, DeleteRecords */ 5, 4, 2,
    /* 22 InitProducerId, OffsetForLeaderEpoch */ 2, 4,
    /* 24 AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit */ 3, 3, 3, 1, 3,
    /* 29 DescribeAcls, CreateAcls, DeleteAcls */ 2, 2, 2,
    /* 32 DescribeConfigs, AlterConfigs, AlterReplicaLogDirs, DescribeLogDirs */ 4, 2, 2, 2,
    /* 36 SaslAuthenticate, CreatePartitions */ 2, 2,
    /* 38 delegation tokens: Create, Renew, Expire, Describe */ 2, 2, 2, 2,
    /* 42 DeleteGroups, ElectLeaders, IncrementalAlterConfigs */ 2, 2, 1,
    /* 45 AlterPartitionReassignments, ListPartitionReassignments, OffsetDelete */ 0, 0, NEVER,
    /* 48 DescribeClientQuotas, AlterClientQuotas */ 1, 1,
    /* 50 DescribeUserScramCredentials, AlterUserScramCredentials */ 0, 0,
    /* 52 Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum */ 0, 1, 1, 0,
    /* 56 AlterPartition, UpdateFeatures, Envelope, FetchSnapshot */ 0, 0, 0, 0,
    /* 60 DescribeCluster, and all that came after it */ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    /* 80 */ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};

typedef struct {
    int16_t api_key;
    int16_t version;
    int32_t correlation_id;
    ottla_span client_id;
    int flexible;
    /* Its body cannot be understood, and need not be: the answer says so, or the connection is closed. */
    int foreign;
} ottla_request_header;

/* Whether requests of this API and version are flexible; -1 if the API does not exist. */
static inline int ottla_is_flexible(int16_t api_key, int16_t version) {
    if (api_key < 0 || api_key >= OTTLA_API_COUNT || ottla_flexible_from[api_key] == GONE) return -1;
    return version >= ottla_flexible_from[api_key];
}
#undef NEVER
#undef GONE

/* Reads the header and leaves the cursor at the body. A header that cannot be read breaks the cursor, except in a
 * foreign request: a client newer than this broker must get its answer, so there the body is empty at worst. */
static inline void ottla_read_header(ottla_cursor *from, ottla_request_header *header) {
    header->api_key = ottla_read16(from);
    header->version = ottla_read16(from);
    header->correlation_id = ottla_read32(from);
    if (from->broken != NULL) return;
    int flexible = ottla_is_flexible(header->api_key, header->version);
    header->flexible = flexible == 1;
    header->foreign = flexible < 0 || (header->api_key == OTTLA_API_VERSIONS &&
                                       (header->version < 0 || header->version > OTTLA_API_VERSIONS_HIGHEST));
    header->client_id = ottla_read_string(from, 0, 1);
    if (header->flexible) ottla_skip_tags(from);
    if (header->foreign) from->broken = NULL;
}

#endif
