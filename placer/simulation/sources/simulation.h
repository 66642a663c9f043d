/* What the parts of the simulated GPUs share.
 *
 * One library answers in the place of all of NVIDIA's: the driver, the runtime, cuBLAS, cuDNN and
 * the others.  Its functions have the names that TensorFlow looks up and do what a program can see
 * of them on the host: they list cards, hand out addresses, copy, and report success.  Kernels do
 * nothing, except for those of kernels.c, whose results programs read as shapes and counts.
 *
 * Names, parameters and numbers follow NVIDIA's published references (CUDA Driver API, CUDA Runtime
 * API, cuDNN, cuBLAS, NVML, NCCL) and were checked against what TensorFlow asks for.
 */
#ifndef SIMULATION_H
#define SIMULATION_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MOST_CARDS 64
#define LONGEST_NAME 96

/* Results that are the same number in the driver and in the runtime. */
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101,
       NOT_FOUND = 500, NOT_SUPPORTED = 801 };

/* One card of the machine.  A CUDA context is the address of its card. */
struct card {
    int index;                /* in the machine, which NVML counts by */
    char name[LONGEST_NAME];
    uint64_t total_bytes;
    uint64_t context_bytes;   /* what the driver and a context take of it */
    uint64_t taken_bytes;     /* handed out by the driver */
    int major, minor;         /* compute capability */
    int multiprocessors;
};

/* cards.c */
int visible_cards(void);               /* after CUDA_VISIBLE_DEVICES */
struct card *visible_card(int ordinal); /* NULL if there is none */
int ordinal_of(const struct card *card);
int machine_cards(void);
struct card *machine_card(int index);
struct card *current_card(void);       /* of this thread; the first one if none was set */
struct card *set_current_card(struct card *card); /* returns the one before, or NULL */
int attribute_of(const struct card *card, int attribute);
int blocks_per_multiprocessor(const struct card *card, int threads);
long setting(const char *name, long otherwise);

/* memory.c */
struct block { char *start; uint64_t bytes, counted_bytes; struct card *card; };
void *take_memory(struct card *card, uint64_t bytes); /* NULL if the card has no room */
void *take_constants(struct card *card, uint64_t bytes); /* which the context has room for */
int give_back(void *start);
int block_at(const void *address, struct block *found); /* 1 if a card's memory is there */
uint64_t free_bytes(const struct card *card);
void *take_host_memory(uint64_t bytes);
void give_host_memory_back(void *start);
void copy_bytes(void *to, const void *from, uint64_t bytes);
void fill_bytes(void *to, unsigned value, int width, uint64_t count);

/* record.c: what the memory of the cards was used for, which others may read */
void note_taken(const struct card *card, const void *address, uint64_t bytes);
void note_given_back(const void *address);
void note_refused(const struct card *card, uint64_t asked);
void note_read(const void *address);
uint64_t asked_bytes_at(const void *address); /* of the part that begins there, else 0 */
void note_launch(const struct card *card);

/* events.c */
void note_thread(void); /* this one gives the cards work */

/* launches.c */
void launch(const char *name, unsigned blocks, void **arguments);

#endif
