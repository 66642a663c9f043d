/* Looks on while TensorFlow's own allocator (BFC) hands out parts of the memory that it took.
 *
 * This library is loaded before TensorFlow's, so the two functions of tsl::BFCAllocator below are
 * found here; they call TensorFlow's own and write down what it answers.  A TensorFlow that names
 * them otherwise is served as well, without these notes. */
#define _GNU_SOURCE
#include "allocator.h"

#include <dlfcn.h>

#define FRAMEWORK "libtensorflow_framework.so.2"
#define LONGEST_OP_NAME 4096
#define ALLOCATE _ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE
#define GIVE_BACK _ZN3tsl12BFCAllocator13DeallocateRawEPv
#define NAME_OF(symbol) NAME_OF_(symbol)
#define NAME_OF_(symbol) #symbol

static __thread int depth; /* of calls to TensorFlow's allocator on this thread */

static void *of_tensorflow(const char *name) {
    static void *library;
    if (!library) library = dlopen(FRAMEWORK, RTLD_LAZY | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

int is_taking_region(void) { return depth > 0; }

/* tsl::profiler::MemoryDebugAnnotation of this thread begins with the name of the op: a view
 * (length, text) in newer versions, the text alone in older ones, where the first word is an
 * address. */
size_t current_op(const char **text) {
    static void *(*annotation)(void);
    static int looked;
    if (!looked) {
        annotation = of_tensorflow("_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv");
        looked = annotation != NULL;
    }
    if (!annotation) return 0;
    const size_t *words = annotation();
    if (words[0] < LONGEST_OP_NAME) {
        *text = (const char *)words[1];
        return *text ? words[0] : 0;
    }
    *text = (const char *)words[0];
    return strnlen(*text, LONGEST_OP_NAME - 1);
}

/* The cards that allocators are of, NULL for one of host memory: a refusal has no address. */
static struct { const void *allocator; struct card *card; } known[2 * MOST_CARDS];

static void remember(const void *allocator, struct card *card) {
    for (int i = 0; i < 2 * MOST_CARDS; i++) {
        if (known[i].allocator == allocator) return;
        if (!known[i].allocator) {
            known[i].card = card;
            known[i].allocator = allocator;
            return;
        }
    }
}

static struct card *card_of(const void *allocator) {
    for (int i = 0; i < 2 * MOST_CARDS && known[i].allocator; i++)
        if (known[i].allocator == allocator) return known[i].card;
    return current_card();
}

void *ALLOCATE(void *allocator, size_t alignment, size_t bytes, const void *attributes) {
    static void *(*allocate)(void *, size_t, size_t, const void *);
    static size_t (*size)(const void *, const void *);
    if (!allocate) {
        size = of_tensorflow("_ZNK3tsl12BFCAllocator13AllocatedSizeEPKv");
        allocate = of_tensorflow(NAME_OF(ALLOCATE));
    }
    note_thread();
    depth++;
    void *start = allocate(allocator, alignment, bytes, attributes);
    depth--;
    struct block block;
    if (start && block_at(start, &block)) {
        note_part(start, size ? size(allocator, start) : bytes, bytes);
        fill_bytes(start, 0, 1, bytes); /* what no kernel writes is read as zeros, in every run */
        remember(allocator, block.card);
    } else if (start)
        remember(allocator, NULL);
    else if (bytes && card_of(allocator))
        note_part_refused(card_of(allocator), bytes);
    return start;
}

void GIVE_BACK(void *allocator, void *start) {
    static void (*give_back_)(void *, void *);
    if (!give_back_) give_back_ = of_tensorflow(NAME_OF(GIVE_BACK));
    note_thread();
    if (start) note_given_back(start);
    depth++; /* it may give regions back to the driver */
    give_back_(allocator, start);
    depth--;
}
