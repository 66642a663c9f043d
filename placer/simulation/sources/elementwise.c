/* Kernels that TensorFlow's MLIR generated: one for each op and pair of types, on elements.
 *
 * Their names are <op>_GPU_DT_<in>_DT_<out>_kernel.  Their arguments are the operands, then the
 * result, each as a memref: its address twice, an offset of 0, the sizes and the strides.  An
 * operand that is broadcast has a stride of 0 there.  The number of elements, and before TensorFlow
 * 2.21 that of a row, stand before the first memref or behind it.  All of this was read off the
 * launches of ops with known operands (tests/simulation/test_computed_kernels.py runs them).
 *
 * Values are computed as long double, which holds all of int64; between floats nothing is. */
#include "allocator.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

#define MOST_RANK 8

struct memref { char *start; int rank; int64_t sizes[MOST_RANK], strides[MOST_RANK]; };

static const struct { const char *name; char type; } TYPES[] = {
    {"BOOL", 'b'}, {"INT8", 'a'}, {"UINT8", 'h'}, {"INT16", 's'}, {"UINT16", 't'}, {"INT32", 'i'},
    {"UINT32", 'j'}, {"INT64", 'l'}, {"UINT64", 'm'}, {"FLOAT", 'f'}, {"DOUBLE", 'd'},
};

static char type_of(const char *text) {
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        size_t length = strlen(TYPES[i].name);
        if (!strncmp(text, TYPES[i].name, length) && text[length] == '_') return TYPES[i].type;
    }
    return 0;
}

static long double value_at(const void *from, char type, int64_t index) {
    if (type == 'f') return ((const float *)from)[index];
    if (type == 'd') return ((const double *)from)[index];
    if (type == 'm') return ((const uint64_t *)from)[index];
    return element(from, type, index);
}

static void set_value(void *to, char type, int64_t index, long double value) {
    if (type == 'f') ((float *)to)[index] = (float)value;
    else if (type == 'd') ((double *)to)[index] = (double)value;
    else if (type == 'b') set_element(to, type, index, value != 0);
    else if (type == 'm') ((uint64_t *)to)[index] = (uint64_t)value;
    else set_element(to, type, index, value >= -0x1p63L && value < 0x1p63L ? (int64_t)value : INT64_MIN);
}

enum op { ADD, SUBTRACT, MULTIPLY, FLOOR_DIVIDE, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,
          LOGICAL_AND, LOGICAL_OR, BITWISE_AND, BITWISE_OR, CAST, ABSOLUTE, NEGATE, SIGN, SQUARE, LOGICAL_NOT, IS_FINITE,
          IS_NAN, IS_INFINITE, MAXIMUM, MINIMUM, FLOOR_MODULO, SELECT };

static const struct { const char *name; enum op op; int operands; } OPS[] = {
    {"AddV2", ADD, 2}, {"Sub", SUBTRACT, 2}, {"Mul", MULTIPLY, 2}, {"FloorDiv", FLOOR_DIVIDE, 2},
    {"Equal", EQUAL, 2}, {"NotEqual", NOT_EQUAL, 2}, {"Less", LESS, 2}, {"LessEqual", LESS_EQUAL, 2},
    {"Greater", GREATER, 2}, {"GreaterEqual", GREATER_EQUAL, 2}, {"LogicalAnd", LOGICAL_AND, 2},
    {"LogicalOr", LOGICAL_OR, 2}, {"BitwiseAnd", BITWISE_AND, 2}, {"BitwiseOr", BITWISE_OR, 2},
    {"Cast", CAST, 1}, {"Abs", ABSOLUTE, 1}, {"Neg", NEGATE, 1}, {"Sign", SIGN, 1}, {"Square", SQUARE, 1},
    {"LogicalNot", LOGICAL_NOT, 1}, {"IsFinite", IS_FINITE, 1}, {"IsNan", IS_NAN, 1}, {"IsInf", IS_INFINITE, 1},
    {"Maximum", MAXIMUM, 2}, {"Minimum", MINIMUM, 2}, {"FloorMod", FLOOR_MODULO, 2},
    {"SelectV2", SELECT, 3},
};

static long double result_of(enum op op, long double a, long double b, long double c) {
    switch (op) {
    case ADD: return a + b;
    case SUBTRACT: return a - b;
    case MULTIPLY: return a * b;
    case FLOOR_DIVIDE: return b != 0 ? floorl(a / b) : 0;
    case EQUAL: return a == b;
    case NOT_EQUAL: return a != b;
    case LESS: return a < b;
    case LESS_EQUAL: return a <= b;
    case GREATER: return a > b;
    case GREATER_EQUAL: return a >= b;
    case LOGICAL_AND: return a != 0 && b != 0;
    case LOGICAL_OR: return a != 0 || b != 0;
    case BITWISE_AND: return (long double)((int64_t)a & (int64_t)b);
    case BITWISE_OR: return (long double)((int64_t)a | (int64_t)b);
    case ABSOLUTE: return fabsl(a);
    case NEGATE: return -a;
    case SIGN: return (a > 0) - (a < 0);
    case SQUARE: return a * a;
    case MAXIMUM: return a > b ? a : b;
    case MINIMUM: return a < b ? a : b;
    case FLOOR_MODULO: return b != 0 ? a - floorl(a / b) * b : 0;
    case LOGICAL_NOT: return a == 0;
    case IS_FINITE: return isfinite(a);
    case IS_NAN: return isnan(a);
    case IS_INFINITE: return isinf(a);
    case SELECT: return a != 0 ? b : c;
    default: return a;
    }
}

/* Reads `count` memrefs; 0 if the arguments are others.  What lies between one address and the next
 * are its offset, sizes and strides; of the last, the result, only the address is read. */
static int read_memrefs(void **arguments, struct memref *memrefs, int count) {
    int at = 0, found = 0;
    for (; !block_at(ARGUMENT(void *, at), NULL); at++) /* the number of elements, and of a row */
        if (at > MOST_RANK) return 0;
    for (; found < count; found++) {
        struct memref *memref = &memrefs[found];
        memref->start = ARGUMENT(char *, at);
        if (!block_at(memref->start, NULL) || ARGUMENT(char *, at + 1) != memref->start) return 0;
        if (found == count - 1) return 1;
        int values = 0;
        while (!block_at(ARGUMENT(void *, at + 3 + values), NULL))
            if (++values > 2 * MOST_RANK + 1) return 0;
        memref->rank = values / 2;
        for (int i = 0; i < memref->rank; i++) {
            memref->sizes[i] = ARGUMENT(int64_t, at + 3 + i);
            memref->strides[i] = ARGUMENT(int64_t, at + 3 + memref->rank + i);
        }
        at += 3 + values;
    }
    return 1;
}

/* Where element `index` of the result, whose shape is that of `shape`, lies in an operand. */
static int64_t place_in(const struct memref *operand, const struct memref *shape, int64_t index) {
    int64_t place = 0;
    if (!operand->rank) return 0;
    for (int i = shape->rank - 1; i >= 0; i--) {
        place += index % shape->sizes[i] * operand->strides[i];
        index /= shape->sizes[i];
    }
    return place;
}

/* Types of 0 are those of the width that the result has. */
static void compute_op(enum op op, int operands, char in, char out, void **arguments) {
    struct memref memrefs[4];
    if (!read_memrefs(arguments, memrefs, operands + 1)) return;
    const struct memref *shape = &memrefs[0];
    for (int i = 1; i < operands; i++)
        if (memrefs[i].rank > shape->rank) shape = &memrefs[i];
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->sizes[i];
    if (!out && count > 0) {
        uint64_t width = asked_bytes_at(memrefs[operands].start) / count;
        out = width == 1 ? 'b' : width == 4 ? 'i' : width == 8 ? 'l' : 0;
        in = op == SELECT ? 'b' : out;
        if (!out) return;
    }
    if (count < 1 || !is_small(count * width_of(out)) || !is_small(count * width_of(in))) return;
    for (int64_t i = 0; i < count; i++) {
        long double of[3] = {0};
        for (int j = 0; j < operands; j++) /* what a selection chooses from is of the type of its result */
            of[j] = value_at(memrefs[j].start, op == SELECT && j ? out : in, place_in(&memrefs[j], shape, i));
        set_value(memrefs[operands].start, out, i, result_of(op, of[0], of[1], of[2]));
    }
}

/* `after` is <in>_DT_<out>_kernel */
static void generated(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *second = strstr(after, "_DT_");
    char in = type_of(after), out = second ? type_of(second + 4) : 0;
    size_t length = after - name - strlen("_GPU_DT_");
    (void)blocks;
    if (!in || !out || ((in == 'f' || in == 'd') && (out == 'f' || out == 'd'))) return;
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (strlen(OPS[i].name) == length && !strncmp(OPS[i].name, name, length))
            compute_op(OPS[i].op, OPS[i].operands, in, out, arguments);
}

static int has_one_type(enum op op) {
    return op != CAST && (op < EQUAL || op > GREATER_EQUAL) && (op < IS_FINITE || op > IS_INFINITE);
}

/* A kernel that TensorFlow compiled in this process: all are named alike, and the op is known by the
 * name of its node alone, which is that of its type unless somebody chose another. */
static void compiled_late(const char *name, const char *after, unsigned blocks, void **arguments) {
    const char *text, *last;
    size_t length = current_op(&text);
    (void)blocks;
    if (name + strlen("main_kernel") != after || *after || !length) return;
    for (last = text + length; last > text && last[-1] != '/';) last--;
    length -= last - text;
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        size_t known = strlen(OPS[i].name);
        if (has_one_type(OPS[i].op) && length >= known && !strncmp(last, OPS[i].name, known) && (length == known || last[known] == '_'))
            compute_op(OPS[i].op, OPS[i].operands, 0, 0, arguments);
    }
}

const struct rule ELEMENTWISE_RULES[] = {
    {{"main_kernel"}, compiled_late},
    {{"_GPU_DT_"}, generated},
    {{NULL}, NULL},
};
