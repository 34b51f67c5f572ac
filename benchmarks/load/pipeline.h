/* Prepared frames, a number of them in flight on each of some connections, in turn over the frames. */
#ifndef OTTLA_LOAD_PIPELINE_H
#define OTTLA_LOAD_PIPELINE_H

#include "load.h"
#include "wire.h"

struct pipelined {
    double seconds, client_cpu_s;
};

/* Sends `options->requests` frames over `options->connections`, and returns when all are answered. `read_error` gives
 * an answer's error code; one that is not 0 ends the program, which then calls it an answer to `what`. */
struct pipelined run_pipeline(const struct options *options, struct writer *frames, int frame_count,
    int (*read_error)(const uint8_t *answer, size_t size), const char *what);

#endif
