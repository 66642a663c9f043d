/* What allocator.c and record.c know of each other. */
#ifndef ALLOCATOR_H
#define ALLOCATOR_H

#include "simulation.h"

/* The name of the op that TensorFlow runs on this thread, and its length; 0 if there is none. */
size_t current_op(const char **text);

/* Whether TensorFlow's own allocator asks the driver on this thread: for a region that it divides. */
int is_taking_region(void);

/* Its parts: handed out, given back, not to be had. */
void note_part(const void *address, uint64_t bytes, uint64_t asked);
void note_part_refused(const struct card *card, uint64_t bytes);

#endif
