/* Kernels on small tensors of integers and bools, computed as TensorFlow's would. */
#include "kernels.h"

#include <stdlib.h>

/* GpuDeviceArrayStruct<T, 8>: a size, then up to eight values, else a pointer to more of them. */
static const int32_t *integers_of(const char *array) {
    return *(const int32_t *)array <= 8 ? (const int32_t *)(array + 4) : *(const int32_t *const *)(array + 40);
}
static const char *const *pointers_of(const char *array) {
    return *(const int32_t *)array <= 8 ? (const char *const *)(array + 8) : *(const char *const *const *)(array + 72);
}

/* DynamicStitchKernel<T>(int slice, int elements, indices, inputs, T *out) */
static void stitch(const char *name, const char *after, unsigned blocks, void **arguments) {
    int slice = ARGUMENT(int, 0), elements = ARGUMENT(int, 1);
    const int32_t *indices = integers_of(arguments[2]);
    const char *const *inputs = pointers_of(arguments[3]);
    char *out = ARGUMENT(char *, 4);
    size_t width = width_of(*after);
    (void)name; (void)blocks;
    if (!width || slice < 1 || !is_small(elements * width)) return;
    for (int i = 0; i < elements; i++) {
        int input = indices[i / slice];
        if (input >= 0) memcpy(out + i * width, inputs[input] + (i % slice) * width, width);
    }
}

/* GatherOpKernel<T, Index, bool first axis>(const T *params, const Index *indices, T *out, long axis,
 * long indices, long slice, long elements); T may be AlignedVector<T, n> */
static void gather(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *params = ARGUMENT(const char *, 0), *vector = strstr(after, "AlignedVectorI");
    const void *indices = ARGUMENT(const void *, 1);
    char *out = ARGUMENT(char *, 2), index_type;
    int64_t axis = ARGUMENT(int64_t, 3), count = ARGUMENT(int64_t, 4), slice = ARGUMENT(int64_t, 5), elements = ARGUMENT(int64_t, 6);
    size_t width;
    (void)name; (void)blocks;
    if (vector && vector < after + 8) {
        char *end;
        width = width_of(vector[14]) * strtoul(vector + 17, &end, 10);  /* AlignedVectorIlLi2EEE */
        after = end + 3;
    } else
        width = width_of(*after++);
    index_type = *after;
    int is_first_axis = after[1] == 'L' && after[3] == '1';
    if (!width || !width_of(index_type) || slice < 1 || !is_small(elements * width)) return;
    for (int64_t i = 0; i < elements; i++) {
        int64_t outer = is_first_axis ? 0 : i / (count * slice), rest = i - outer * count * slice;
        int64_t index = element(indices, index_type, rest / slice);
        if (index < 0 || index >= axis) memset(out + i * width, 0, width);
        else memcpy(out + i * width, params + ((outer * axis + index) * slice + rest % slice) * width, width);
    }
}

/* concat_fixed_kernel<T, Index>(inputs, Index columns of each, Index rows, Index columns, T *out) */
static void concat_equal(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *const *inputs = pointers_of(arguments[0]);
    int each = ARGUMENT(int, 1), rows = ARGUMENT(int, 2), columns = ARGUMENT(int, 3);
    char *out = ARGUMENT(char *, 4);
    size_t width = width_of(*after);
    (void)name; (void)blocks;
    if (!width || after[1] != 'i' || each < 1 || !is_small(rows * columns * width)) return;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column += each)
            memcpy(out + ((size_t)row * columns + column) * width, inputs[column / each] + (size_t)row * each * width, each * width);
}

/* concat_variable_kernel<T, Index, bool>(inputs, where the columns of each begin, Index rows, Index
 * columns, T *out) */
static void concat_unequal(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *const *inputs = pointers_of(arguments[0]);
    const int32_t *starts = integers_of(arguments[1]);
    int number = ARGUMENT(int, 0), rows = ARGUMENT(int, 2), columns = ARGUMENT(int, 3);
    char *out = ARGUMENT(char *, 4);
    size_t width = width_of(*after);
    (void)name; (void)blocks;
    if (!width || after[1] != 'i' || !is_small((uint64_t)rows * columns * width)) return;
    for (int input = 0; input < number; input++) {
        size_t each = (starts[input + 1] - starts[input]) * width;
        for (size_t row = 0; row < (size_t)rows; row++)
            memcpy(out + (row * columns + starts[input]) * width, inputs[input] + row * each, each);
    }
}

/* RangeInitKernel<T>(T start, T step, n, T *out) */
static void range(const char *name, const char *after, unsigned blocks, void **arguments) {
    char type = *after;
    (void)name; (void)blocks;
    if (type != 'i' && type != 'l' && type != 'x') return;
    int64_t start = element(arguments[0], type, 0), step = element(arguments[1], type, 0);
    int64_t count = element(arguments[2], strstr(after, "iPS") ? 'i' : type, 0);
    char *out = ARGUMENT(char *, 3);
    if (!is_small(count * width_of(type))) return;
    for (int64_t i = 0; i < count; i++) set_element(out, type, i, start + i * step);
}

/* Eigen's kernels have an evaluator and the number of elements, of the type named at the end of the
 * name.  An evaluator of a TensorMap is a pointer, its sizes and a device: 24 bytes for rank 1. */
static int64_t eigen_count(const char *name, void **arguments) {
    return strstr(name, "GpuDeviceEEElEEv") ? ARGUMENT(int64_t, 1) : ARGUMENT(int, 1);
}

/* scalar_constant_op<T> has a value, scalar_const_op<T> points to one. */
static void fill_with(const char *after, void **arguments, int is_pointer) {
    char type = *after, *out = ARGUMENT(char *, 0), *functor = (char *)arguments[0] + 24;
    int64_t count = eigen_count(after, arguments);
    if (type == 'f' || type == 'd' || !width_of(type) || !is_small(count * width_of(type))) return;
    int64_t value = element(is_pointer ? *(void **)functor : functor, type, 0);
    for (int64_t i = 0; i < count; i++) set_element(out, type, i, value);
}
static void fill(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name; (void)blocks;
    fill_with(after, arguments, 0);
}
static void fill_from(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name; (void)blocks;
    fill_with(after, arguments, 1);
}

/* out = left + right or left - right, as variables are counted up */
static void assign_sum(const char *after, void **arguments, int sign) {
    char type = *after, *found[3];
    if (type == 'K') type = after[1];
    int64_t count = eigen_count(after, arguments);
    if ((type != 'i' && type != 'l' && type != 'x') || !is_small(count * width_of(type))) return;
    if (addresses_in(arguments[0], 16, found, 3) < 3) return;
    for (int64_t i = 0; i < count; i++)
        set_element(found[0], type, i, element(found[1], type, i) + sign * element(found[2], type, i));
}
static void assign_add(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name; (void)blocks;
    assign_sum(after, arguments, 1);
}
static void assign_subtract(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name; (void)blocks;
    assign_sum(after, arguments, -1);
}

/* Slices of Eigen with indices of type int.  The evaluator of a slice of rank R has the strides of
 * its shape (R ints) and three words a stride to divide by, the strides of the whole (R ints), the
 * evaluator of the whole (a pointer, R ints, a device), a device, its shape (R ints), whether it is
 * the whole (int), and its first indices (R ints); pointers are aligned. */
static uint64_t aligned(uint64_t offset) { return (offset + 7) & ~7ull; }
static uint64_t map_bytes(int rank) { return aligned(8 + 4 * rank) + 8; }
static uint64_t slice_bytes(int rank) { return aligned(aligned(20 * rank) + map_bytes(rank) + 8 + 8 * rank + 4); }

/* Copies the slice at `slice` to `other`, or `other` to it.  Its shape and first indices are ints ('i'),
 * or longs ('l') behind which the flag takes eight bytes. */
static void copy_slice(const char *slice, char *other, int rank, size_t width, int is_written, char index) {
    const char *map = slice + aligned(20 * rank), *shape = map + map_bytes(rank) + 8;
    const char *behind = shape + (index == 'l' ? 8 * rank + 8 : 4 * rank + 4);
    const int *strides = (const int *)(slice + 16 * rank);
    int64_t sizes[8], first[8];
    char *whole = *(char *const *)map;
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        sizes[i] = element(shape, index, i);
        first[i] = element(behind, index, i);
        count *= sizes[i];
    }
    if (count < 1 || !is_small(count * width) || !block_at(whole, NULL) || !block_at(other, NULL)) return;
    for (int64_t index = 0; index < count; index++) {
        int64_t rest = index, place = 0;
        for (int i = rank - 1; i >= 0; i--) { /* the last dimension has a stride of 1, which is not kept */
            place += (first[i] + rest % sizes[i]) * (i == rank - 1 ? 1 : strides[i]);
            rest /= sizes[i];
        }
        if (is_written) memcpy(whole + place * width, other + index * width, width);
        else memcpy(other + index * width, whole + place * width, width);
    }
}

/* TensorMap<Tensor<T, R, 1, int>>, then a slice of another one: `after` is T Li R */
static void read_slice(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *indices = strstr(after, "TensorSlicingOpIKNS_6DSizesI");
    int rank = after[3] - '0';
    char index = indices ? indices[28] : 0;
    (void)name; (void)blocks;
    if (rank >= 1 && rank <= 8 && width_of(*after) && (index == 'i' || index == 'l'))
        copy_slice((char *)arguments[0] + map_bytes(rank), ARGUMENT(char *, 0), rank, width_of(*after), 0, index);
}

/* A slice that is assigned to: TensorSlicingOp<array<int, R>, ..., TensorMap<Tensor<T, ...>>> */
static void write_slice(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *tensor = strstr(after, "6TensorI");
    int rank = after[0] - '0';
    (void)name; (void)blocks;
    if (!tensor || rank < 1 || rank > 8 || !width_of(tensor[8])) return;
    const char *slice = arguments[0];
    copy_slice(slice, *(char *const *)(slice + slice_bytes(rank)), rank, width_of(tensor[8]), 1, 'i');
}

/* Reductions: <T *, ...>(const T *in, T *out, ...), the operation by its name */

enum operation { SUM, PRODUCT, AND, OR, MOST, LEAST, NONE };

static enum operation operation_of(const char *after) {
    static const struct { const char *name; enum operation operation; } NAMED[] = {
        {"3SumI", SUM}, {"4ProdI", PRODUCT}, {"3AndE", AND}, {"2OrE", OR}, {"3Max", MOST}, {"15MaxPropagateNaN", MOST},
        {"3Min", LEAST}, {"15MinPropagateNaN", LEAST},
    };
    for (size_t i = 0; i < sizeof NAMED / sizeof *NAMED; i++)
        if (strstr(after, NAMED[i].name)) return NAMED[i].operation;
    return NONE;
}

static int64_t combine(enum operation operation, int64_t one, int64_t other) {
    switch (operation) {
    case SUM: return one + other;
    case PRODUCT: return one * other;
    case AND: return one && other;
    case OR: return one || other;
    case MOST: return one > other ? one : other;
    default: return one < other ? one : other;
    }
}

/* `count` elements, `step` apart, from `first` on */
static int64_t reduced(const char *in, char type, enum operation operation, size_t first, size_t step, int count) {
    int64_t value = element(in, type, first);
    for (int i = 1; i < count; i++) value = combine(operation, value, element(in, type, first + i * step));
    return value;
}

static int is_integer(char type) { return width_of(type) && type != 'f' && type != 'd'; }

/* All elements to one.  Several blocks write a part each, which another launch reduces: the first
 * gets the whole and the others what changes nothing. */
static void reduce_all(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name;
    char type = *after, *out = ARGUMENT(char *, 1);
    enum operation operation = operation_of(after);
    int count = ARGUMENT(int, 2);
    if (!is_integer(type) || operation == NONE || count < 1 || !is_small(count * width_of(type))) return;
    int64_t value = reduced(ARGUMENT(char *, 0), type, operation, 0, 1, count);
    set_element(out, type, 0, value);
    for (unsigned block = 1; block < blocks; block++)
        set_element(out, type, block, operation == SUM ? 0 : operation == PRODUCT ? 1 : value);
}
static void reduce_rows(const char *name, const char *after, unsigned blocks, void **arguments) {
    char type = *after;
    enum operation operation = operation_of(after);
    int rows = ARGUMENT(int, 2), columns = ARGUMENT(int, 3);
    (void)name; (void)blocks;
    if (!is_integer(type) || operation == NONE || columns < 1 || !is_small(rows * columns * width_of(type))) return;
    for (int row = 0; row < rows; row++)
        set_element(ARGUMENT(char *, 1), type, row, reduced(ARGUMENT(char *, 0), type, operation, (size_t)row * columns, 1, columns));
}
/* Columns: by blocks side by side, each for some columns, and below one another, each for some rows,
 * which another launch reduces. */
static void reduce_columns_by(const char *after, unsigned parts, void **arguments) {
    char type = *after, *out = ARGUMENT(char *, 1);
    enum operation operation = operation_of(after);
    int rows = ARGUMENT(int, 2), columns = ARGUMENT(int, 3);
    if (!is_integer(type) || operation == NONE || rows < 1 || !is_small((uint64_t)rows * columns * width_of(type))) return;
    for (int column = 0; column < columns; column++) {
        int64_t value = reduced(ARGUMENT(char *, 0), type, operation, column, columns, rows);
        set_element(out, type, column, value);
        for (unsigned part = 1; part < parts; part++)
            set_element(out, type, (size_t)part * columns + column, operation == SUM ? 0 : operation == PRODUCT ? 1 : value);
    }
}
static void reduce_few_columns(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name;
    reduce_columns_by(after, blocks, arguments);
}
static void reduce_columns(const char *name, const char *after, unsigned blocks, void **arguments) {
    (void)name;
    reduce_columns_by(after, blocks / ((ARGUMENT(int, 3) + 31) / 32), arguments);
}

/* CleanupSegments(parts, out, int rows, int columns, int parts of each): what several blocks left */
static void reduce_parts(const char *name, const char *after, unsigned blocks, void **arguments) {
    char type = *after;
    enum operation operation = operation_of(after);
    int rows = ARGUMENT(int, 2), columns = ARGUMENT(int, 3), parts = ARGUMENT(int, 4);
    (void)name; (void)blocks;
    if (!is_integer(type) || operation == NONE || !is_small((uint64_t)rows * columns * parts * width_of(type))) return;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            set_element(ARGUMENT(char *, 1), type, (size_t)row * columns + column,
                        reduced(ARGUMENT(char *, 0), type, operation, (size_t)row * columns * parts + column, columns, parts));
}

const struct rule TENSOR_RULES[] = {
    {{"DynamicStitchKernelI"}, stitch},
    {{"14GatherOpKernelI"}, gather},
    {{"concat_fixed_kernelI"}, concat_equal},
    {{"concat_variable_kernelI"}, concat_unequal},
    {{"RangeInitKernelI"}, range},
    {{"TensorCwiseNullaryOpINS0_18scalar_constant_opI"}, fill},
    {{"TensorCwiseNullaryOpINS0_15scalar_const_opI"}, fill_from},
    {{"TensorCwiseBinaryOpINS0_13scalar_sum_opI"}, assign_add},
    {{"TensorCwiseBinaryOpINS0_20scalar_difference_opI"}, assign_subtract},
    {{"TensorAssignOpINS_9TensorMapINS_6TensorI", "EiEELi16ENS_11MakePointerEEEKNS_15TensorSlicingOpI"}, read_slice},
    {{"TensorAssignOpINS_15TensorSlicingOpIKNS_5arrayIiLm"}, write_slice},
    {{"17BlockReduceKernelIP"}, reduce_all},
    {{"15RowReduceKernelIP"}, reduce_rows},
    {{"30ColumnReduceMax16ColumnsKernelIP"}, reduce_few_columns},
    {{"18ColumnReduceKernelIP"}, reduce_columns},
    {{"15CleanupSegmentsIP"}, reduce_parts},
    {{NULL}, NULL},
};
