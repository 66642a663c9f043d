/* The cards of the machine, those that a program sees, and the one that a thread works on. */
#include "simulation.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct card cards[MOST_CARDS];
static int card_count;
static struct card *visible[MOST_CARDS];
static int visible_count;
static __thread struct card *current;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* PLACER_SIMULATED_GPUS has a card a line: total bytes, bytes of the context, capability,
 * multiprocessors, name. */
static void read_cards(void) {
    const char *line = getenv("PLACER_SIMULATED_GPUS");
    while (line && *line && card_count < MOST_CARDS) {
        struct card *card = &cards[card_count];
        unsigned long long total, context;
        if (sscanf(line, "%llu %llu %d.%d %d %95[^\n]", &total, &context, &card->major,
                   &card->minor, &card->multiprocessors, card->name) == 6) {
            card->total_bytes = total;
            card->context_bytes = context;
            card->index = card_count++;
        }
        line = strchr(line, '\n');
        if (line) line++;
    }
}

/* As the driver reads it: numbers or the beginning of a UUID, up to the first that is no card. */
static void read_visible(void) {
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");
    if (!entry) {
        for (int i = 0; i < card_count; i++) visible[visible_count++] = &cards[i];
        return;
    }
    while (*entry) {
        char *end;
        long index = -1;
        unsigned number;
        while (*entry == ' ') entry++;
        if (sscanf(entry, "GPU-%8x", &number) == 1) index = (long)number - 1;
        else {
            index = strtol(entry, &end, 10);
            if (end == entry) return;
        }
        if (index < 0 || index >= card_count || visible_count == MOST_CARDS) return;
        for (int i = 0; i < visible_count; i++)
            if (visible[i] == &cards[index]) {
                visible_count = 0;   /* a card twice: CUDA shows none */
                return;
            }
        visible[visible_count++] = &cards[index];
        entry = strchr(entry, ',');
        if (!entry) return;
        entry++;
    }
}

static void read_all(void) {
    read_cards();
    read_visible();
}

int machine_cards(void) {
    pthread_once(&once, read_all);
    return card_count;
}

struct card *machine_card(int index) {
    return index >= 0 && index < machine_cards() ? &cards[index] : NULL;
}

int visible_cards(void) {
    pthread_once(&once, read_all);
    return visible_count;
}

struct card *visible_card(int ordinal) {
    return ordinal >= 0 && ordinal < visible_cards() ? visible[ordinal] : NULL;
}

int ordinal_of(const struct card *card) {
    for (int i = 0; i < visible_cards(); i++)
        if (visible[i] == card) return i;
    return -1;
}

struct card *current_card(void) {
    if (current) return current;
    struct card *first = visible_card(0);
    return first ? first : &cards[0];
}

struct card *set_current_card(struct card *card) {
    struct card *before = current;
    current = card;
    return before;
}

long setting(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value && *value ? strtol(value, NULL, 10) : otherwise;
}

/* Bytes of shared memory that a block may ask for and that a multiprocessor has, and the threads
 * that it runs: "Technical Specifications per Compute Capability" of the CUDA programming guide. */
static const struct limits { int capability, block_bytes, multiprocessor_bytes, threads; } LIMITS[] = {
    {60, 49152, 65536, 2048},    {61, 49152, 98304, 2048},    {70, 98304, 98304, 2048},
    {75, 65536, 65536, 1024},    {80, 166912, 167936, 2048},  {86, 101376, 102400, 1536},
    {87, 166912, 167936, 1536},  {89, 101376, 102400, 1536},  {90, 232448, 233472, 2048},
    {100, 232448, 233472, 2048}, {120, 101376, 102400, 1536},
};

static struct limits limits_of(const struct card *card) {
    int capability = 10 * card->major + card->minor;
    struct limits found = LIMITS[0];
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++)
        if (LIMITS[i].capability <= capability) found = LIMITS[i];
    return found;
}

/* The numbers are those of CUdevice_attribute, and of cudaDeviceAttr in the runtime. */
int attribute_of(const struct card *card, int attribute) {
    struct limits limits = limits_of(card);
    switch (attribute) {
    case 1: return 1024;                         /* threads of a block */
    case 2: case 3: return 1024;                 /* its first and second dimension */
    case 4: return 64;                           /* its third */
    case 5: return 2147483647;                   /* blocks of a grid */
    case 6: case 7: return 65535;                /* its second and third dimension */
    case 8: return 49152;                        /* shared bytes of a block */
    case 9: return 65536;                        /* constant bytes */
    case 10: return 32;                          /* threads of a warp */
    case 11: return 2147483647;                  /* longest pitch */
    case 12: return 65536;                       /* registers of a block */
    case 13: return 1500000;                     /* clock, kHz */
    case 14: return 512;                         /* alignment of textures */
    case 16: return card->multiprocessors;
    case 31: return 1;                           /* kernels run beside one another */
    case 33: return card->index + 1;             /* PCI bus; device and domain are 0 */
    case 36: return 5000000;                     /* clock of the memory, kHz */
    case 37: return 256;                         /* width of its bus, bits */
    case 38: return 4 << 20;                     /* second level cache */
    case 39: return limits.threads;              /* threads of a multiprocessor */
    case 40: return 3;                           /* engines that copy */
    case 41: return 1;                           /* one address space with the host */
    case 75: return card->major;
    case 76: return card->minor;
    case 78: return 1;                           /* priorities of streams */
    case 81: return limits.multiprocessor_bytes; /* shared bytes of a multiprocessor */
    case 82: return 65536;                       /* its registers */
    case 97: return limits.block_bytes;          /* shared bytes of a block that asks for them */
    case 102: return 1;                          /* virtual memory management */
    case 106: return 32;                         /* blocks of a multiprocessor */
    case 115: return 1;                          /* pools of memory (cudaMallocAsync) */
    default: return 0;
    }
}

int blocks_per_multiprocessor(const struct card *card, int threads) {
    int fit = limits_of(card).threads / (threads > 0 ? threads : 1);
    return fit < 1 ? 1 : fit > 32 ? 32 : fit;
}
