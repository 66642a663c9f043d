/* Events: they come to pass when the host has nothing left to do.
 *
 * TensorFlow holds what a copy between devices reads until one of its threads, which polls, finds
 * the event behind the copy.  On cards that is later than the launches of the host, which runs
 * ahead.  Here kernels take no time; if events took none either, that thread would race with those
 * that launch, and peaks would differ from run to run by what copies hold.  So an event is ready
 * once all other threads that use the cards sleep, the oldest event first.  One may sleep for a lock
 * that the thread which polls has: they must do so twice in a row.  One may never sleep: an event
 * is ready, too, when the process has worked for some time since it was asked for. */
#define _GNU_SOURCE
#include "simulation.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOT_READY 600
#define MOST_THREADS 256
#define LONGEST_WAIT 0.01 /* seconds of the processor, of all threads */

struct event { struct event *older, *younger; double since; int is_awaited; uint64_t slept_at; };

static struct event *oldest, *youngest;
static int threads[MOST_THREADS], thread_count; /* those that use the cards */
static __thread int thread, launches; /* its number, 0 if not among them; whether it gives cards work */
static uint64_t calls; /* that gave the cards work */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The child of a fork has one thread, and another number for it. */
static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    thread_count = thread = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget); }

static void join(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (thread) return;
    pthread_once(&once, watch_forks);
    thread = (int)syscall(SYS_gettid);
    pthread_mutex_lock(&lock);
    if (thread_count < MOST_THREADS) threads[thread_count++] = thread;
    pthread_mutex_unlock(&lock);
}

void note_thread(void) {
    launches = 1;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    join();
}

static double worked(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* The state of a thread as Linux has it: R runs or would, D waits for a disk, S sleeps; 0 if it has
 * ended. */
static char state_of(int number) {
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : 0;
}

static int others_sleep(void) {
    for (int i = 0; i < thread_count; i++) {
        if (threads[i] == thread) continue;
        char state = state_of(threads[i]);
        if (state == 'R' || state == 'D') return 0;
        if (!state) threads[i--] = threads[--thread_count];
    }
    return 1;
}

static void await(struct event *event) {
    event->is_awaited = 1;
    event->since = worked();
    event->slept_at = 0;
    event->older = youngest;
    event->younger = NULL;
    if (youngest) youngest->younger = event;
    else oldest = event;
    youngest = event;
}

static void await_no_more(struct event *event) {
    if (!event->is_awaited) return;
    event->is_awaited = 0;
    if (event->older) event->older->younger = event->younger;
    else oldest = event->younger;
    if (event->younger) event->younger->older = event->older;
    else youngest = event->older;
}

/* Those that have waited long enough are ready, though nobody may ask for them again. */
static int is_ready(struct event *event) {
    double late = worked() - LONGEST_WAIT;
    const struct event *first = oldest;
    while (first != event && first->since < late) first = first->younger;
    if (event->since < late) return 1;
    uint64_t now = __atomic_load_n(&calls, __ATOMIC_RELAXED) + 1;
    int sleep_now = first == event && !launches && others_sleep(), slept = event->slept_at == now;
    event->slept_at = sleep_now ? now : 0;
    return sleep_now && slept;
}

int cuEventCreate(struct event **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, 256);
    return *event ? SUCCESS : OUT_OF_MEMORY;
}

int cuEventQuery(struct event *event) {
    join();
    pthread_mutex_lock(&lock);
    if (!event->is_awaited) await(event);
    int status = is_ready(event) ? SUCCESS : NOT_READY;
    if (status == SUCCESS) await_no_more(event);
    pthread_mutex_unlock(&lock);
    return status;
}

int cuEventDestroy_v2(struct event *event) {
    pthread_mutex_lock(&lock);
    await_no_more(event);
    pthread_mutex_unlock(&lock);
    free(event);
    return SUCCESS;
}
