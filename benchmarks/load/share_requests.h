/* What members of share groups send and read: ShareGroupHeartbeat v1, ShareFetch v1, ShareAcknowledge v1, and the
 * IncrementalAlterConfigs v1 that has a group start at the oldest record.
 *
 * The answer to a ShareGroupHeartbeat has the layout of a ConsumerGroupHeartbeat's: take_consumer_heartbeat reads it.
 */
#ifndef OTTLA_LOAD_SHARE_REQUESTS_H
#define OTTLA_LOAD_SHARE_REQUESTS_H

#include "group_requests.h"

enum {
    INCREMENTAL_ALTER_CONFIGS_KEY = 44, SHARE_GROUP_HEARTBEAT_KEY = 76, SHARE_FETCH_KEY = 78,
    SHARE_ACKNOWLEDGE_KEY = 79, GROUP_CONFIG_TYPE = 32, ACCEPT = 1,
    FETCH_BYTES_MAX = 52428800, /* the Java client's default */
};

/* Records of one partition that a member holds. */
struct acquired {
    int partition, delivery_count;
    int64_t first, last;
};

struct acquired_list {
    struct acquired *items;
    int count, capacity;
};

static inline bool add_acquired(struct acquired_list *list, struct acquired item) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->items = realloc(list->items, (size_t)list->capacity * sizeof *list->items);
        if (list->items == NULL) return false;
    }
    list->items[list->count++] = item;
    return true;
}

static inline struct writer new_earliest_config(const char *group) {
    struct writer out = {0};
    put_header(&out, INCREMENTAL_ALTER_CONFIGS_KEY, 1, 8);
    put_unsigned_varint(&out, 2);
    put_number(&out, GROUP_CONFIG_TYPE, 1);
    put_compact_string(&out, group);
    put_unsigned_varint(&out, 2);
    put_compact_string(&out, "share.auto.offset.reset");
    put_number(&out, 0, 1); /* set */
    put_compact_string(&out, "earliest");
    put_no_tags(&out); /* config */
    put_no_tags(&out); /* resource */
    put_number(&out, 0, 1); /* not only validated */
    put_no_tags(&out);
    end_frame(&out);
    return out;
}

static inline int read_altered_configs(const uint8_t *frame, size_t size) {
    struct reader in = {frame, frame + size, false};
    take(&in, 4);
    skip_tags(&in);
    take(&in, 4); /* throttle time */
    uint64_t count = take_count(&in);
    int error = (int)take_number(&in, 2);
    return in.broken || count != 1 ? UNREADABLE : error;
}

static inline void put_share_heartbeat(
    struct writer *out, const char *group, const char *member, int epoch, const char *topic) {
    put_header(out, SHARE_GROUP_HEARTBEAT_KEY, 1, 9);
    put_compact_string(out, group);
    put_compact_string(out, member);
    put_number(out, epoch, 4);
    put_compact_nullable(out, NULL); /* no rack */
    put_unsigned_varint(out, epoch == 0 ? 2 : 0);
    if (epoch == 0) put_compact_string(out, topic);
    put_no_tags(out);
}

static inline void put_accepted(struct writer *out, const struct acquired *items, int count) {
    put_unsigned_varint(out, (uint64_t)count + 1);
    for (int at = 0; at < count; at++) {
        put_number(out, items[at].first, 8);
        put_number(out, items[at].last, 8);
        put_unsigned_varint(out, 2);
        put_number(out, ACCEPT, 1);
        put_no_tags(out);
    }
    put_no_tags(out); /* partition */
}

/* The topic with the partitions of a list, which holds those of one partition together; accepts all of it. */
static inline void put_accepting_topic(struct writer *out, const uint8_t *topic_id, const struct acquired_list *list) {
    uint64_t partitions = 0;
    for (int at = 0; at < list->count; at++)
        partitions += at == 0 || list->items[at].partition != list->items[at - 1].partition;
    put_unsigned_varint(out, partitions > 0 ? 2 : 1);
    if (partitions == 0) return;
    put_bytes(out, topic_id, 16);
    put_unsigned_varint(out, partitions + 1);
    for (int at = 0, end; at < list->count; at = end) {
        for (end = at + 1; end < list->count && list->items[end].partition == list->items[at].partition;) end++;
        put_number(out, list->items[at].partition, 4);
        put_accepted(out, list->items + at, end - at);
    }
    put_no_tags(out); /* topic */
}

struct share_fetch {
    const char *group, *member;
    int session_epoch; /* 0 opens the session, with all partitions of `held` */
    int wait_ms, records_max;
    const struct held_partitions *held;
    const struct acquired_list *accepted; /* empty in the first request of a session */
};

static inline void put_share_fetch(struct writer *out, const struct share_fetch *fetch) {
    put_header(out, SHARE_FETCH_KEY, 1, 10);
    put_compact_string(out, fetch->group);
    put_compact_string(out, fetch->member);
    put_number(out, fetch->session_epoch, 4);
    put_number(out, fetch->wait_ms, 4);
    put_number(out, 1, 4); /* answer as soon as there is a byte */
    put_number(out, FETCH_BYTES_MAX, 4);
    put_number(out, fetch->records_max, 4);
    put_number(out, fetch->records_max, 4); /* batch size */
    if (fetch->session_epoch == 0) {
        put_unsigned_varint(out, 2);
        put_bytes(out, fetch->held->topic_id, 16);
        put_unsigned_varint(out, (uint64_t)fetch->held->count + 1);
        for (int at = 0; at < fetch->held->count; at++) {
            put_number(out, fetch->held->partitions[at], 4);
            put_accepted(out, NULL, 0);
        }
        put_no_tags(out); /* topic */
    } else {
        put_accepting_topic(out, fetch->held->topic_id, fetch->accepted);
    }
    put_unsigned_varint(out, 1); /* nothing forgotten */
    put_no_tags(out);
}

static inline void put_share_acknowledge(struct writer *out, const char *group, const char *member, int session_epoch,
    const uint8_t *topic_id, const struct acquired_list *accepted) {
    put_header(out, SHARE_ACKNOWLEDGE_KEY, 1, 11);
    put_compact_string(out, group);
    put_compact_string(out, member);
    put_number(out, session_epoch, 4);
    put_accepting_topic(out, topic_id, accepted);
    put_no_tags(out);
}

/* The first error of a ShareFetch's answer, of the request, a partition or its acknowledgements. What was acquired is
 * added to `list`; `bytes` counts those of batches. */
static inline int take_share_fetch(struct reader *in, struct acquired_list *list, int64_t *bytes) {
    uint64_t size;
    take(in, 4); /* throttle time */
    int error = (int)take_number(in, 2);
    take_compact(in, &size); /* message */
    take(in, 4);             /* lock timeout */
    for (uint64_t topics = take_count(in); topics > 0 && !in->broken; topics--) {
        take(in, 16); /* topic id */
        for (uint64_t left = take_count(in); left > 0 && !in->broken; left--) {
            int partition = (int)take_number(in, 4);
            int partition_error = (int)take_number(in, 2);
            take_compact(in, &size); /* message */
            int acknowledge_error = (int)take_number(in, 2);
            take_compact(in, &size); /* message */
            take(in, 8);             /* leader and its epoch */
            skip_tags(in);
            take_compact(in, &size); /* records */
            *bytes += (int64_t)size;
            for (uint64_t ranges = take_count(in); ranges > 0 && !in->broken; ranges--) {
                struct acquired item = {.partition = partition};
                item.first = take_number(in, 8);
                item.last = take_number(in, 8);
                item.delivery_count = (int)take_number(in, 2);
                skip_tags(in);
                if (!add_acquired(list, item)) in->broken = true;
            }
            skip_tags(in);
            if (error == NO_ERROR) error = partition_error != NO_ERROR ? partition_error : acknowledge_error;
        }
        skip_tags(in);
    }
    return in->broken ? UNREADABLE : error;
}

/* The first error of a ShareAcknowledge's answer. */
static inline int take_share_acknowledge(struct reader *in) {
    uint64_t size;
    take(in, 4); /* throttle time */
    int error = (int)take_number(in, 2);
    take_compact(in, &size); /* message */
    for (uint64_t topics = take_count(in); topics > 0 && !in->broken; topics--) {
        take(in, 16); /* topic id */
        for (uint64_t left = take_count(in); left > 0 && !in->broken; left--) {
            take(in, 4); /* partition */
            int partition_error = (int)take_number(in, 2);
            take_compact(in, &size); /* message */
            take(in, 8);             /* leader and its epoch */
            skip_tags(in);
            skip_tags(in);
            if (error == NO_ERROR) error = partition_error;
        }
        skip_tags(in);
    }
    return in->broken ? UNREADABLE : error;
}

#endif
