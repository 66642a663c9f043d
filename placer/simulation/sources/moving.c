/* Kernels that move elements about: slices with steps, tiles, transposes, gathers by several indices,
 * one-hot codes, running and segmented sums.
 *
 * What Eigen's evaluators hold was read off the launches of ops with known shapes, in words of four
 * bytes; tests/simulation/test_computed_kernels.py runs them. */
#include "kernels.h"

#define MOST_RANK 8

/* A TensorMap in an evaluator: an address, R sizes of `width` bytes, a device. */
static uint64_t aligned(uint64_t offset) { return (offset + 7) & ~7ull; }
static uint64_t map_bytes(int rank, int width) { return aligned(8 + (uint64_t)width * rank) + 8; }

/* out[index] = in[start + sum of its coordinates, each below its limit, times the strides] */
static void pick(char *out, const char *in, size_t width, int rank, const int64_t *sizes, const int64_t *limits,
                 const int64_t *strides, int64_t start) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= sizes[i];
    if (count < 1 || !is_small(count * width) || !block_at(in, NULL) || !block_at(out, NULL)) return;
    for (int64_t index = 0; index < count; index++) {
        int64_t rest = index, place = start;
        for (int i = rank - 1; i >= 0; i--) {
            place += rest % sizes[i] % limits[i] * strides[i];
            rest /= sizes[i];
        }
        memcpy(out + index * width, in + place * width, width);
    }
}

/* `after` is T Li R E Li1E and the type of indices; 0 if that is another, or T is not known. */
static int read_rank(const char *after, char index) {
    int rank = after[3] - '0';
    return rank >= 1 && rank <= MOST_RANK && width_of(*after) && after[9] == index ? rank : 0;
}

/* Strides of the result and three words each to divide by, strides of the operand times the steps,
 * whether it is the whole, the operand's map, a device, first indices, sizes, offsets, steps. */
static void slice_with_steps(const char *name, const char *after, unsigned blocks, void **arguments) {
    int rank = read_rank(after, 'i');
    (void)name; (void)blocks;
    if (!rank) return;
    const char *slice = (char *)arguments[0] + map_bytes(rank, 4), *map = slice + aligned(20 * rank + 4);
    const int *strides = (const int *)slice + 4 * rank, *first = (const int *)(map + map_bytes(rank, 4) + 8);
    int64_t sizes[MOST_RANK], steps[MOST_RANK], start = 0;
    for (int i = 0; i < rank; i++) {
        sizes[i] = first[rank + i];
        steps[i] = strides[i];
        start += first[2 * rank + i];
    }
    pick(ARGUMENT(char *, 0), *(char *const *)map, width_of(*after), rank, sizes, sizes, steps, start);
}

/* Flags, a device, how often each dimension is repeated, sizes and strides of the result, strides of
 * the operand, its map. */
static void tile(const char *name, const char *after, unsigned blocks, void **arguments) {
    int rank = read_rank(after, 'i');
    (void)name; (void)blocks;
    if (!rank) return;
    const char *evaluator = (char *)arguments[0] + map_bytes(rank, 4);
    const int *repeats = (const int *)evaluator + 4;
    int64_t sizes[MOST_RANK], own[MOST_RANK], strides[MOST_RANK];
    for (int i = 0; i < rank; i++) {
        if (repeats[i] < 1 || repeats[rank + i] < repeats[i]) return;
        sizes[i] = repeats[rank + i];
        own[i] = sizes[i] / repeats[i];
        strides[i] = repeats[3 * rank + i];
    }
    pick(ARGUMENT(char *, 0), *(char *const *)(evaluator + aligned(16 + 16 * rank)), width_of(*after), rank, sizes, own, strides, 0);
}

/* Dimension i of the result is dimension order[i] of the operand. */
static void permute(char *out, const char *in, size_t width, int rank, const int64_t *sizes, const int *order) {
    int64_t of_operand[MOST_RANK], strides[MOST_RANK], step = 1, all[MOST_RANK];
    for (int i = 0; i < rank; i++) {
        if (order[i] < 0 || order[i] >= rank) return;
        of_operand[order[i]] = sizes[i];
    }
    for (int i = rank - 1; i >= 0; i--) {
        all[i] = step;
        step *= of_operand[i];
    }
    for (int i = 0; i < rank; i++) strides[i] = all[order[i]];
    pick(out, in, width, rank, sizes, sizes, strides, 0);
}

/* Sizes of the result again, whether nothing changes, the order of dimensions, ..., the operand */
static void shuffle(const char *name, const char *after, unsigned blocks, void **arguments) {
    int rank = read_rank(after, 'l');
    char *found[2];
    (void)name; (void)blocks;
    if (!rank || addresses_in(arguments[0], 80, found, 2) < 2) return;
    const char *evaluator = arguments[0];
    permute(found[0], found[1], width_of(*after), rank, (const int64_t *)(evaluator + 8), (const int *)(evaluator + 20 + 16 * rank));
}

/* ShuffleInTensor3Simple<T, a, b, c, bool>(int n, const T *in, int sizes[3], T *out): `after` is
 * T Li a E Li b E Li c, and dimension a of the result is the operand's first */
static void shuffle_three(const char *name, const char *after, unsigned blocks, void **arguments) {
    const int *sizes = arguments[2], to[3] = {after[3] - '0', after[7] - '0', after[11] - '0'};
    int64_t of_result[3] = {0};
    int order[3] = {0};
    (void)name; (void)blocks;
    for (int i = 0; i < 3; i++) {
        if (to[i] < 0 || to[i] > 2) return;
        of_result[to[i]] = sizes[i];
        order[to[i]] = i;
    }
    if (width_of(*after)) permute(ARGUMENT(char *, 3), ARGUMENT(char *, 1), width_of(*after), 3, of_result, order);
}

/* SwapDimension1And2InTensor3UsingTiles<T, ...>(const T *in, int sizes[3], T *out) */
static void swap_two(const char *name, const char *after, unsigned blocks, void **arguments) {
    const int *sizes = arguments[1], order[3] = {0, 2, 1};
    const int64_t of_result[3] = {sizes[0], sizes[2], sizes[1]};
    size_t width = !strncmp(after, "6float", 6) ? 4 * (size_t)(after[6] - '0') : width_of(*after); /* float2, float4 */
    (void)name; (void)blocks;
    if (width) permute(ARGUMENT(char *, 2), ARGUMENT(char *, 0), width, 3, of_result, order);
}

/* OneGenerator<T, Index>: result (before, depth, behind) of longs; indices (before, behind), the
 * values on and off */
static void one_hot(const char *name, const char *after, unsigned blocks, void **arguments) {
    const int64_t *sizes = (const int64_t *)arguments[0] + 1;
    size_t width = width_of(*after);
    char *found[4], index = after[1];
    (void)name; (void)blocks;
    if (!width || !width_of(index) || addresses_in(arguments[0], 26, found, 4) < 4) return;
    int64_t count = sizes[0] * sizes[1] * sizes[2];
    if (!is_small(count * width)) return;
    for (int64_t i = 0; i < count; i++) {
        int64_t place = i / (sizes[1] * sizes[2]) * sizes[2] + i % sizes[2], at = i / sizes[2] % sizes[1];
        memcpy(found[0] + i * width, element(found[1], index, place) == at ? found[2] : found[3], width);
    }
}

/* GatherSliceOpKernel<T, Index, R>(const T *params, const Index *indices, T *out, long strides[R],
 * long limits[R], long indices, long slice, long elements) */
static void gather_slices(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *params = ARGUMENT(const char *, 0);
    const void *indices = ARGUMENT(const void *, 1);
    char *out = ARGUMENT(char *, 2), index = after[1];
    const int64_t *strides = arguments[3], *limits = arguments[4];
    int64_t slice = ARGUMENT(int64_t, 6), elements = ARGUMENT(int64_t, 7);
    size_t width = width_of(*after);
    int rank = after[4] - '0';
    (void)name; (void)blocks;
    if (!width || !width_of(index) || rank < 1 || rank > MOST_RANK || slice < 1 || !is_small(elements * width)) return;
    for (int64_t row = 0; row * slice < elements; row++) {
        int64_t place = 0;
        int is_inside = 1;
        for (int i = 0; i < rank; i++) {
            int64_t at = element(indices, index, row * rank + i);
            is_inside &= at >= 0 && at < limits[i];
            place += at * strides[i];
        }
        if (is_inside) memcpy(out + row * slice * width, params + place * width, slice * width);
        else memset(out + row * slice * width, 0, slice * width);
    }
}

/* scan_kernel<T, Sum or Prod>(const T *in, T *out, int x, int y, int z, bool exclusive, bool reverse):
 * along y */
static void scan(const char *name, const char *after, unsigned blocks, void **arguments) {
    int x = ARGUMENT(int, 2), y = ARGUMENT(int, 3), z = ARGUMENT(int, 4), is_sum = strstr(after, "3SumI") != NULL;
    char type = *after, is_exclusive = ARGUMENT(char, 5), is_reverse = ARGUMENT(char, 6);
    (void)name; (void)blocks;
    if (!width_of(type) || type == 'f' || type == 'd' || !(is_sum || strstr(after, "4ProdI"))) return;
    if (!is_small((uint64_t)x * y * z * width_of(type))) return;
    for (int line = 0; line < x * z; line++) {
        int64_t value = !is_sum;
        for (int i = 0; i < y; i++) {
            size_t at = ((size_t)(line / z) * y + (is_reverse ? y - 1 - i : i)) * z + line % z;
            int64_t own = element(ARGUMENT(void *, 0), type, at), next = is_sum ? value + own : value * own;
            set_element(ARGUMENT(void *, 1), type, at, is_exclusive ? value : next);
            value = next;
        }
    }
}

/* UnsortedSegmentCustomKernel<T, Index, sum>(long rows, long columns, long segments, const Index *of,
 * const T *in, T *out), which begins with zeros */
static void add_segments(const char *name, const char *after, unsigned blocks, void **arguments) {
    int64_t rows = ARGUMENT(int64_t, 0), columns = ARGUMENT(int64_t, 1), segments = ARGUMENT(int64_t, 2);
    char type = after[0], index = after[1], *out = ARGUMENT(char *, 5);
    (void)name; (void)blocks;
    if (!width_of(type) || type == 'f' || type == 'd' || !width_of(index)) return;
    if (!is_small(rows * columns * width_of(type)) || !is_small(segments * columns * width_of(type))) return;
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t segment = element(ARGUMENT(void *, 3), index, i / columns), to = segment * columns + i % columns;
        if (segment >= 0 && segment < segments)
            set_element(out, type, to, element(out, type, to) + element(ARGUMENT(void *, 4), type, i));
    }
}

const struct rule MOVING_RULES[] = {
    {{"TensorAssignOpINS_9TensorMapINS_6TensorI", "TensorStridingSlicingOpI"}, slice_with_steps},
    {{"TensorAssignOpINS_9TensorMapINS_6TensorI", "KNS_20TensorBroadcastingOpIKNS_5arrayIiLm", "KNS4_INS5_IK"}, tile},
    {{"TensorAssignOpINS_9TensorMapINS_6TensorI", "KNS_17TensorShufflingOpIKNS_5arrayIiLm", "KNS4_INS5_IK"}, shuffle},
    {{"ShuffleInTensor3SimpleI"}, shuffle_three},
    {{"SwapDimension1And2InTensor3UsingTilesI"}, swap_two},
    {{"12OneGeneratorI"}, one_hot},
    {{"GatherSliceOpKernelI"}, gather_slices},
    {{"11scan_kernelI"}, scan},
    {{"UnsortedSegmentCustomKernelI", "AtomicSumOpGpu"}, add_segments},
    {{NULL}, NULL},
};
