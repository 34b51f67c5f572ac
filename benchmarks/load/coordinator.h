/* Waiting until a broker coordinates: what is made at first use must not be in what is measured. */
#ifndef OTTLA_LOAD_COORDINATOR_H
#define OTTLA_LOAD_COORDINATOR_H

#include "load.h"
#include "wire.h"

/* Asks for the coordinator of the group or transactional id until the broker knows it; fails after some seconds. */
void await_coordinator(const struct options *options, int key_type, const char *key);

/* Sends the frame, again and again while the coordinator is only starting. Any other error ends the program. */
void send_until_taken(const struct options *options, int socket, const struct writer *frame,
    int (*read_error)(const uint8_t *answer, size_t size), const char *what);

/* `options->name` and a number: a group or a transactional id of this run. */
void put_name(char *to, size_t capacity, const struct options *options, int number);

#endif
