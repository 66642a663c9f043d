/* What cub sorts, scans and counts for Unique, Where, TopK and DynamicPartition, and the kernels that
 * make their results of it. */
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
    (void)name; (void)after; (void)blocks;
    for (int i = 0; i < number; i++) sum += counts[i];
    *ARGUMENT(int *, 1) = sum;
}

/* (keys, sorted keys, values, sorted values, first, last, int segments, int bit, int bits): a pass over
 * some bits of the keys of every segment; an offset is (length of a segment, the first one or 0) */
static void sort_segments(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *policy = strstr(after, "Policy"), *types = policy ? strstr(policy, "00ELb") : NULL;
    int length = ARGUMENT(int, 4), segments = ARGUMENT(int, 6);
    (void)name; (void)blocks;
    if (!types || length < 1 || segments < 1) return;
    char is_descending = types[9] == '1', key = types[11], value = types[12]; /* 00ELb<bits>ELb<order>E<key><value> */
    size_t key_bytes = width_of(key) * length, value_bytes = width_of(value) * length;
    if (!key_bytes || !value_bytes || key == 'f' || key == 'd' || !is_small(segments * (key_bytes + value_bytes))) return;
    for (int i = 0; i < segments; i++)
        sort_pairs(ARGUMENT(char *, 0) + i * key_bytes, ARGUMENT(char *, 1) + i * key_bytes, ARGUMENT(char *, 2) + i * value_bytes,
                   ARGUMENT(char *, 3) + i * value_bytes, length, key, width_of(value), ARGUMENT(int, 7), ARGUMENT(int, 8), is_descending);
}

/* ColumnIndexCreator: the column of every element of an evaluator of rank 1, whose length lies at
 * byte 8 and the number of columns at 52 */
static void number_columns(const char *name, const char *after, unsigned blocks, void **arguments) {
    const int *words = arguments[0];
    int count = words[2], columns = words[13], *out = ARGUMENT(int *, 0);
    (void)name; (void)after; (void)blocks;
    for (int i = 0; columns > 0 && is_small(count * sizeof *out) && i < count; i++) out[i] = i % columns;
}

/* ExtractFirstOccurrenceIndicesKernel<Index>(long number, long unique, sorted, segment of each, Index
 * *first, Index *ends) */
static void first_of_segments(const char *name, const char *after, unsigned blocks, void **arguments) {
    int64_t number = ARGUMENT(int64_t, 0), unique = ARGUMENT(int64_t, 1);
    const void *sorted = ARGUMENT(void *, 2), *segments = ARGUMENT(void *, 3);
    char *ends = ARGUMENT(char *, 5), type = *after;
    (void)name; (void)blocks;
    for (int64_t i = 0; width_of(type) && i < number; i++) {
        int64_t segment = element(segments, type, i);
        if (i && segment == element(segments, type, i - 1)) continue;
        set_element(ARGUMENT(void *, 4), type, segment, element(sorted, type, i));
        if (ends) set_element(ends, type, i ? segment - 1 : unique - 1, i ? i : number);
    }
}

/* GatherOutputsAndInvertPermutationKernel<T, Index>(long unique, const T *in, first, order, ends, T
 * *out, Index *place, Index *count) */
static void gather_unique(const char *name, const char *after, unsigned blocks, void **arguments) {
    int64_t unique = ARGUMENT(int64_t, 0);
    const char *in = ARGUMENT(char *, 1);
    const void *first = ARGUMENT(void *, 2), *order = ARGUMENT(void *, 3), *ends = ARGUMENT(void *, 4);
    char *out = ARGUMENT(char *, 5), *counts = ARGUMENT(char *, 7), type = after[1];
    size_t width = width_of(*after);
    (void)name; (void)blocks;
    for (int64_t i = 0; width && width_of(type) && i < unique; i++) {
        int64_t segment = element(order, type, i);
        memcpy(out + i * width, in + element(first, type, i) * width, width);
        set_element(ARGUMENT(void *, 6), type, segment, i);
        if (counts) set_element(counts, type, i, element(ends, type, segment) - (segment ? element(ends, type, segment - 1) : 0));
    }
}

/* LookupAndScatterUniqueIdsKernel<Index>(long number, sorted, segment of each, place, Index *ids) */
static void scatter_ids(const char *name, const char *after, unsigned blocks, void **arguments) {
    char type = *after;
    (void)name; (void)blocks;
    for (int64_t i = 0; width_of(type) && i < ARGUMENT(int64_t, 0); i++)
        set_element(ARGUMENT(void *, 4), type, element(ARGUMENT(void *, 1), type, i),
                    element(ARGUMENT(void *, 3), type, element(ARGUMENT(void *, 2), type, i)));
}

/* Where, of rank R: the places of what is not 0, R words apart.  (from 0 on, iterator that points to
 * the values, {long *out, rows}, int *selected, state, -, -, int number) */
static void select_places(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *rank = strstr(after, "WhereOutputIteratorILi");
    const struct { int64_t *start, rows; } *out = arguments[2];
    char *values, type = *after;
    int number = ARGUMENT(int, 7);
    int64_t found = 0;
    (void)name; (void)blocks;
    if (!rank || !width_of(type) || type == 'f' || type == 'd' || addresses_in(arguments[1], 3, &values, 1) < 1) return;
    for (int i = 0; i < number && found < out->rows; i++)
        if (element(values, type, i)) out->start[found++ * (rank[22] - '0')] = i;
    *ARGUMENT(int *, 3) = (int)found;
}

/* PropagateWhereIndicesKernel<R, Index>(Index rows, Index strides[R], long *places): places become
 * coordinates */
static void split_places(const char *name, const char *after, unsigned blocks, void **arguments) {
    int rank = after[2] - '0';
    char type = after[4];
    int64_t *places = ARGUMENT(int64_t *, 2);
    (void)name; (void)blocks;
    if (rank < 1 || rank > 8 || !width_of(type)) return;
    for (int64_t row = 0; row < element(arguments[0], type, 0); row++) {
        int64_t place = places[row * rank];
        for (int i = 0; i < rank; i++) {
            int64_t stride = element(arguments[1], type, i);
            places[row * rank + i] = place / stride;
            place %= stride;
        }
    }
}

/* How often each key stands in a row, for DynamicPartition.  (const int *keys, {int *out, int, int
 * room} for the keys, ones, the same for the counts, int *runs, state, first tile, -, -, int number) */
static void count_runs(const char *name, const char *after, unsigned blocks, void **arguments) {
    const int *keys = ARGUMENT(const int *, 0);
    const struct { int *start, unused, room; } *unique = arguments[1], *counts = arguments[3];
    int runs = 0, number = ARGUMENT(int, 9);
    (void)name; (void)after; (void)blocks;
    for (int i = 0, begin = 0; i < number; i++) {
        if (i + 1 < number && keys[i + 1] == keys[i]) continue;
        if (runs < unique->room) unique->start[runs] = keys[i], counts->start[runs] = i + 1 - begin;
        runs++;
        begin = i + 1;
    }
    *ARGUMENT(int *, 4) = runs;
}

/* MoveValuesKernel(const int *keys, const int *values, const int *number, int room, int *out) */
static void move_values(const char *name, const char *after, unsigned blocks, void **arguments) {
    int number = *ARGUMENT(const int *, 2), room = ARGUMENT(int, 3);
    (void)name; (void)after; (void)blocks;
    for (int i = 0; i < number && i < room; i++) {
        int key = ARGUMENT(const int *, 0)[i];
        if (key >= 0 && key < room) ARGUMENT(int *, 4)[key] = ARGUMENT(const int *, 1)[i];
    }
}

const struct rule SORTING_RULES[] = {
    {{"DeviceReduceByKeyKernelI", "21BoundedOutputIteratorE"}, count_runs},
    {{"16MoveValuesKernelE"}, move_values},
    {{"DeviceSegmentedRadixSortKernelI"}, sort_segments},
    {{"18ColumnIndexCreatorE"}, number_columns},
    {{"ExtractFirstOccurrenceIndicesKernelI"}, first_of_segments},
    {{"GatherOutputsAndInvertPermutationKernelI"}, gather_unique},
    {{"LookupAndScatterUniqueIdsKernelI"}, scatter_ids},
    {{"9IsNonzeroI", "WhereOutputIteratorILi"}, select_places},
    {{"PropagateWhereIndicesKernelI"}, split_places},
    {{"DeviceRadixSortSingleTileKernelI"}, sort_tile},
    {{"DeviceRadixSortOnesweepKernelI"}, sort_pass},
    {{"23SegmentIndicatorFunctorI"}, count_changes},
    {{"DeviceReduceSingleTileKernelI", "plus", "EPKbPi"}, count_true},
    {{"18DeviceReduceKernelI", "plus", "EPKb"}, count_true},
    {{"DeviceReduceSingleTileKernelI", "plus", "EPiS"}, add_counts},
    {{NULL}, NULL},
};
