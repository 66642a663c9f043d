/* What the files of computed kernels share. */
#ifndef KERNELS_H
#define KERNELS_H

#include "simulation.h"

/* The argument `index` of a launch, which is of type `type`. */
#define ARGUMENT(type, index) (*(type *)arguments[index])

struct rule {
    const char *parts[3];  /* texts that the name of the kernel has in this order */
    void (*compute)(const char *name, const char *after, unsigned blocks, void **arguments);
    /* `after` is what follows the first part in the name: the types of the template */
};

extern const struct rule TENSOR_RULES[], SORTING_RULES[], MOVING_RULES[], ELEMENTWISE_RULES[];

/* Element types by their letter in a mangled name: b bool, a h bytes, i j, l m x y, f d. */
size_t width_of(char type);
int64_t element(const void *from, char type, size_t index);
void set_element(void *to, char type, size_t index, int64_t value);

/* Whether a result of so many bytes is worth computing: as much as copies keep. */
int is_small(uint64_t bytes);

/* The first addresses of a card's memory among the words from `from` on; how many were found. */
int addresses_in(const void *from, int words, char **found, int wanted);

#endif
