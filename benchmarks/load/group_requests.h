/* What members of groups send and read: FindCoordinator v4, JoinGroup v9, SyncGroup v5, Heartbeat v4, LeaveGroup v5,
 * OffsetCommit v8 and ConsumerGroupHeartbeat v1, which all use compact encodings.
 *
 * Each `put_` function begins a request in a writer; send_request of peer.h ends it. Each `take_` function reads an
 * answer from behind its header.
 */
#ifndef OTTLA_LOAD_GROUP_REQUESTS_H
#define OTTLA_LOAD_GROUP_REQUESTS_H

#include "requests.h"

enum {
    OFFSET_COMMIT_KEY = 8, FIND_COORDINATOR_KEY = 10, JOIN_GROUP_KEY = 11, HEARTBEAT_KEY = 12, LEAVE_GROUP_KEY = 13,
    SYNC_GROUP_KEY = 14, CONSUMER_GROUP_HEARTBEAT_KEY = 68,
    GROUP_KEY_TYPE = 0, TRANSACTION_KEY_TYPE = 1,
    SESSION_TIMEOUT_MS = 45000, REBALANCE_TIMEOUT_MS = 60000,
    ID_BYTES_MAX = 160,
};

enum {
    UNREADABLE = -999, NO_ERROR = 0, COORDINATOR_LOADING = 14, COORDINATOR_NOT_AVAILABLE = 15, NOT_COORDINATOR = 16,
    ILLEGAL_GENERATION = 22, UNKNOWN_MEMBER = 25, REBALANCE_IN_PROGRESS = 27, CONCURRENT_TRANSACTIONS = 51,
    MEMBER_ID_REQUIRED = 79,
};

static inline bool is_coordinator_starting(int error) {
    return error == COORDINATOR_LOADING || error == COORDINATOR_NOT_AVAILABLE || error == NOT_COORDINATOR;
}

static inline void put_find_coordinator(struct writer *out, int key_type, const char *key) {
    put_header(out, FIND_COORDINATOR_KEY, 4, 1);
    put_number(out, key_type, 1);
    put_unsigned_varint(out, 2);
    put_compact_string(out, key);
    put_no_tags(out);
}

static inline int take_find_coordinator(struct reader *in) {
    uint64_t size;
    take(in, 4); /* throttle time */
    uint64_t count = take_count(in);
    take_compact(in, &size); /* key */
    take(in, 4);             /* broker */
    take_compact(in, &size); /* host */
    take(in, 4);             /* port */
    int error = (int)take_number(in, 2);
    return in->broken || count != 1 ? UNREADABLE : error;
}

/* A subscription to one topic, as the Java consumer says it for a classic group. */
static inline struct writer new_subscription(const char *topic) {
    struct writer out = {0};
    put_number(&out, 1, 2); /* version */
    put_number(&out, 1, 4);
    put_string(&out, topic);
    put_number(&out, -1, 4); /* no user data */
    put_number(&out, 0, 4);  /* owns nothing */
    return out;
}

/* One partition of one topic. */
static inline struct writer new_assignment(const char *topic, int partition) {
    struct writer out = {0};
    put_number(&out, 1, 2); /* version */
    put_number(&out, 1, 4);
    put_string(&out, topic);
    put_number(&out, 1, 4);
    put_number(&out, partition, 4);
    put_number(&out, -1, 4); /* no user data */
    return out;
}

static inline void put_join(struct writer *out, const char *group, const char *member, const struct writer *subscription) {
    put_header(out, JOIN_GROUP_KEY, 9, 2);
    put_compact_string(out, group);
    put_number(out, SESSION_TIMEOUT_MS, 4);
    put_number(out, REBALANCE_TIMEOUT_MS, 4);
    put_compact_string(out, member);
    put_compact_nullable(out, NULL); /* not static */
    put_compact_string(out, "consumer");
    put_unsigned_varint(out, 2);
    put_compact_string(out, "range");
    put_compact_bytes(out, subscription);
    put_no_tags(out);
    put_compact_nullable(out, NULL); /* no reason */
    put_no_tags(out);
}

struct joined {
    int error, generation;
    bool is_leader;
    char member[ID_BYTES_MAX];
    uint64_t member_count; /* 0 unless it is the leader */
    struct reader members;
};

static inline struct joined take_joined(struct reader *in) {
    struct joined found = {0};
    char leader[ID_BYTES_MAX];
    uint64_t size;
    take(in, 4); /* throttle time */
    found.error = (int)take_number(in, 2);
    found.generation = (int)take_number(in, 4);
    take_compact(in, &size); /* protocol type */
    take_compact(in, &size); /* protocol */
    take_text(in, leader, sizeof leader);
    take(in, 1); /* skip assignment */
    take_text(in, found.member, sizeof found.member);
    found.member_count = take_count(in);
    found.members = *in;
    found.is_leader = strcmp(leader, found.member) == 0;
    if (in->broken) found.error = UNREADABLE;
    return found;
}

/* Everybody gets one partition, in the order of the leader's list, which `joined` must be of. */
static inline void put_sync(
    struct writer *out, const char *group, const struct joined *joined, const char *topic) {
    put_header(out, SYNC_GROUP_KEY, 5, 3);
    put_compact_string(out, group);
    put_number(out, joined->generation, 4);
    put_compact_string(out, joined->member);
    put_compact_nullable(out, NULL);
    put_compact_string(out, "consumer");
    put_compact_string(out, "range");
    uint64_t count = joined->is_leader ? joined->member_count : 0;
    put_unsigned_varint(out, count + 1);
    struct reader members = joined->members;
    for (uint64_t at = 0; at < count; at++) {
        char member[ID_BYTES_MAX];
        uint64_t size;
        take_text(&members, member, sizeof member);
        take_compact(&members, &size); /* instance id */
        take_compact(&members, &size); /* subscription */
        skip_tags(&members);
        struct writer assignment = new_assignment(topic, (int)at);
        put_compact_string(out, member);
        put_compact_bytes(out, &assignment);
        put_no_tags(out);
        free(assignment.data);
    }
    put_no_tags(out);
}

static inline int take_synced(struct reader *in) {
    uint64_t size;
    take(in, 4); /* throttle time */
    int error = (int)take_number(in, 2);
    take_compact(in, &size); /* protocol type */
    take_compact(in, &size); /* protocol */
    take_compact(in, &size); /* assignment */
    return in->broken || (error == NO_ERROR && size == 0) ? UNREADABLE : error;
}

static inline void put_heartbeat(struct writer *out, const char *group, int generation, const char *member) {
    put_header(out, HEARTBEAT_KEY, 4, 4);
    put_compact_string(out, group);
    put_number(out, generation, 4);
    put_compact_string(out, member);
    put_compact_nullable(out, NULL);
    put_no_tags(out);
}

static inline void put_leave(struct writer *out, const char *group, const char *member) {
    put_header(out, LEAVE_GROUP_KEY, 5, 5);
    put_compact_string(out, group);
    put_unsigned_varint(out, 2);
    put_compact_string(out, member);
    put_compact_nullable(out, NULL);
    put_compact_nullable(out, NULL); /* no reason */
    put_no_tags(out);
    put_no_tags(out);
}

/* The error behind the throttle time, where Heartbeat and LeaveGroup have it. */
static inline int take_error(struct reader *in) {
    take(in, 4);
    int error = (int)take_number(in, 2);
    return in->broken ? UNREADABLE : error;
}

/* Commits the same offset for the first partitions of one topic, without a member id. */
static inline struct writer new_commit(const char *group, const char *topic, int partitions) {
    struct writer out = {0};
    put_header(&out, OFFSET_COMMIT_KEY, 8, 6);
    put_compact_string(&out, group);
    put_number(&out, -1, 4); /* no generation */
    put_compact_string(&out, "");
    put_compact_nullable(&out, NULL);
    put_unsigned_varint(&out, 2);
    put_compact_string(&out, topic);
    put_unsigned_varint(&out, (uint64_t)partitions + 1);
    for (int partition = 0; partition < partitions; partition++) {
        put_number(&out, partition, 4);
        put_number(&out, 1234567, 8);
        put_number(&out, 0, 4); /* leader epoch */
        put_compact_string(&out, "");
        put_no_tags(&out);
    }
    put_no_tags(&out);
    put_no_tags(&out);
    end_frame(&out);
    return out;
}

/* The first error of an OffsetCommit's answer, header included. */
static inline int read_commit(const uint8_t *frame, size_t size) {
    struct reader in = {frame, frame + size, false};
    uint64_t length;
    int error = NO_ERROR, seen = 0;
    take(&in, 4);
    skip_tags(&in);
    take(&in, 4); /* throttle time */
    for (uint64_t topics = take_count(&in); topics > 0 && !in.broken; topics--) {
        take_compact(&in, &length);
        for (uint64_t left = take_count(&in); left > 0 && !in.broken; left--, seen++) {
            take(&in, 4);
            int found = (int)take_number(&in, 2);
            if (error == NO_ERROR) error = found;
            skip_tags(&in);
        }
        skip_tags(&in);
    }
    return in.broken || seen == 0 ? UNREADABLE : error;
}

struct held_partitions {
    uint8_t topic_id[16];
    int count, capacity;
    int32_t *partitions;
};

/* A member of a server-side group: says all when it joins, afterwards only what it holds, if `held` is not NULL. */
static inline void put_consumer_heartbeat(struct writer *out, const char *group, const char *member, int epoch,
    const char *topic, const struct held_partitions *held) {
    bool joins = epoch == 0;
    put_header(out, CONSUMER_GROUP_HEARTBEAT_KEY, 1, 7);
    put_compact_string(out, group);
    put_compact_string(out, member);
    put_number(out, epoch, 4);
    put_compact_nullable(out, NULL); /* not static */
    put_compact_nullable(out, NULL); /* no rack */
    put_number(out, joins ? REBALANCE_TIMEOUT_MS : -1, 4);
    put_unsigned_varint(out, joins ? 2 : 0);
    if (joins) put_compact_string(out, topic);
    put_compact_nullable(out, NULL); /* no pattern */
    put_compact_nullable(out, NULL); /* any assignor */
    bool says_held = joins || held != NULL;
    bool holds = held != NULL && held->count > 0;
    put_unsigned_varint(out, says_held ? (holds ? 2 : 1) : 0);
    if (says_held && holds) {
        put_bytes(out, held->topic_id, 16);
        put_unsigned_varint(out, (uint64_t)held->count + 1);
        for (int at = 0; at < held->count; at++) put_number(out, held->partitions[at], 4);
        put_no_tags(out);
    }
    put_no_tags(out);
}

struct consumer_answer {
    int error, epoch;
    bool has_assignment;
};

/* What the answer assigns goes to `held`, if it assigns at all; one topic at most. */
static inline struct consumer_answer take_consumer_heartbeat(struct reader *in, struct held_partitions *held) {
    struct consumer_answer found = {0};
    uint64_t size;
    take(in, 4); /* throttle time */
    found.error = (int)take_number(in, 2);
    take_compact(in, &size); /* message */
    take_compact(in, &size); /* member id */
    found.epoch = (int)take_number(in, 4);
    take(in, 4); /* heartbeat interval */
    found.has_assignment = take_number(in, 1) > 0;
    if (found.has_assignment) {
        uint64_t topics = take_count(in);
        held->count = 0;
        if (topics > 1) in->broken = true;
        const uint8_t *topic_id = topics == 1 ? take(in, 16) : NULL;
        if (topic_id != NULL) memcpy(held->topic_id, topic_id, 16);
        for (uint64_t left = topics == 1 ? take_count(in) : 0; left > 0 && !in->broken; left--) {
            int32_t partition = (int32_t)take_number(in, 4);
            if (held->count == held->capacity) {
                held->capacity = held->capacity ? 2 * held->capacity : 8;
                held->partitions = realloc(held->partitions, (size_t)held->capacity * sizeof *held->partitions);
                if (held->partitions == NULL) in->broken = true;
            }
            if (!in->broken) held->partitions[held->count++] = partition;
        }
    }
    if (in->broken) found.error = UNREADABLE;
    return found;
}

#endif
