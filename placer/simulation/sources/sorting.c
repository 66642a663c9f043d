/* What cub sorts, scans and counts for Unique, Where and DynamicPartition. */
#include "kernels.h"

#include <stdlib.h>

/* Sorts keys, and values of `width` bytes with them, by the bits [from, from + count), stably. */
static void sort_pairs(const char *keys, char *sorted_keys, const char *values, char *sorted_values, size_t number,
                       char type, size_t width, int from, int count, int is_descending) {
    size_t key_width = width_of(type);
    int is_signed = type == 'i' || type == 'l' || type == 'x' || type == 'a' || type == 's';
    char *from_keys = malloc(number * key_width + 1), *from_values = malloc(number * width + 1);
    if (!from_keys || !from_values) abort();
    if (keys != sorted_keys) memcpy(sorted_keys, keys, number * key_width);
    if (values && values != sorted_values) memcpy(sorted_values, values, number * width);
    for (int bit = from; bit < from + count; bit += 8) { /* eight bits at a time, the lowest first */
        int bits = from + count - bit < 8 ? from + count - bit : 8;
        size_t starts[257] = {0};
        uint64_t mask = (1u << bits) - 1;
        uint64_t flipped = is_signed ? 1ull << (8 * key_width - 1) : 0;
        memcpy(from_keys, sorted_keys, number * key_width);
        if (values) memcpy(from_values, sorted_values, number * width);
#define DIGIT(i) ((((uint64_t)element(from_keys, type, i) ^ flipped) >> bit & mask) ^ (is_descending ? mask : 0))
        for (size_t i = 0; i < number; i++) starts[DIGIT(i) + 1]++;
        for (int digit = 0; digit < 256; digit++) starts[digit + 1] += starts[digit];
        for (size_t i = 0; i < number; i++) {
            size_t at = starts[DIGIT(i)]++;
            memcpy(sorted_keys + at * key_width, from_keys + i * key_width, key_width);
            if (values) memcpy(sorted_values + at * width, from_values + i * width, width);
        }
#undef DIGIT
    }
    free(from_keys);
    free(from_values);
}

/* The types of a sort follow its policy, of 900 or 1000: ...00ELb<descending>E<key><value><offset> */
static int read_types(const char *after, int *is_descending, char *key, char *value) {
    const char *policy = strstr(after, "00ELb");
    if (!policy) return 0;
    *is_descending = policy[5] == '1';
    *key = policy[7];
    *value = policy[8];
    return *key != 'f' && *key != 'd' && width_of(*key) && width_of(*value);
}

/* (keys, sorted keys, values, sorted values, number, first bit, last bit): all at once */
static void sort_tile(const char *name, const char *after, unsigned blocks, void **arguments) {
    int is_descending;
    char key, value;
    (void)name; (void)blocks;
    if (!read_types(after, &is_descending, &key, &value)) return;
    sort_pairs(ARGUMENT(char *, 0), ARGUMENT(char *, 1), ARGUMENT(char *, 2), ARGUMENT(char *, 3), ARGUMENT(unsigned, 4),
               key, width_of(value), ARGUMENT(int, 5), ARGUMENT(int, 6) - ARGUMENT(int, 5), is_descending);
}

/* (look back, counters, bins, bins, sorted keys, keys, sorted values, values, number, bit, bits): a
 * pass over some bits of the keys */
static void sort_pass(const char *name, const char *after, unsigned blocks, void **arguments) {
    int is_descending;
    char key, value;
    (void)name; (void)blocks;
    if (!read_types(after, &is_descending, &key, &value)) return;
    sort_pairs(ARGUMENT(char *, 5), ARGUMENT(char *, 4), ARGUMENT(char *, 7), ARGUMENT(char *, 6), ARGUMENT(unsigned, 8),
               key, width_of(value), ARGUMENT(int, 9), ARGUMENT(int, 10), is_descending);
}

/* SegmentIndicatorFunctor<T, Index>: how many times the sorted values changed up to each of them.
 * (iterator that points to the values, int *out, state, first tile, plus, start, number) */
static void count_changes(const char *name, const char *after, unsigned blocks, void **arguments) {
    char *values, type = *after;
    int *out = ARGUMENT(int *, 1), changes = 0, number = ARGUMENT(int, 6);
    (void)name; (void)blocks;
    if (!width_of(type) || addresses_in(arguments[0], 4, &values, 1) < 1) return;
    for (int i = 0; i < number; i++) {
        changes += i && element(values, type, i) != element(values, type, i - 1);
        out[i] = changes;
    }
}

/* How many of (const bool *, int *out, number) are true, by one block or by several. */
static void count_true(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *flags = ARGUMENT(const char *, 0);
    int *out = ARGUMENT(int *, 1), number = ARGUMENT(int, 2), found = 0;
    (void)name; (void)after;
    for (int i = 0; i < number; i++) found += flags[i] != 0;
    memset(out, 0, blocks * sizeof *out);
    *out = found;
}

/* The sum of (const int *, int *out, number): what several blocks counted. */
static void add_counts(const char *name, const char *after, unsigned blocks, void **arguments) {
    const int *counts = ARGUMENT(const int *, 0);
    int number = ARGUMENT(int, 2), sum = 0;
    (void)name; (void)after;
    (void)name; (void)blocks;
    for (int i = 0; i < number; i++) sum += counts[i];
    *ARGUMENT(int *, 1) = sum;
}

const struct rule SORTING_RULES[] = {
    {{"DeviceRadixSortSingleTileKernelI"}, sort_tile},
    {{"DeviceRadixSortOnesweepKernelI"}, sort_pass},
    {{"23SegmentIndicatorFunctorI"}, count_changes},
    {{"DeviceReduceSingleTileKernelI", "plus", "EPKbPi"}, count_true},
    {{"18DeviceReduceKernelI", "plus", "EPKb"}, count_true},
    {{"DeviceReduceSingleTileKernelI", "plus", "EPiS"}, add_counts},
    {{NULL}, NULL},
};
