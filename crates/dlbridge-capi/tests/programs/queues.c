// Queues across forks, with a `wake` that never returns, and as descriptors of an event loop.

#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static float number = 1;

static dlb_tensor *export_to(dlb_queue *queue) {
    dlb_memory memory = {
        .struct_size = sizeof memory, .data = &number, .token = &number, .queue = queue,
        .device = {DLB_DEVICE_CPU, 0}, .dtype = {DLB_TYPE_FLOAT, 32, 1},
    };
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&memory, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static size_t empty(dlb_queue *queue) {
    void *tokens[8];
    size_t found, all = 0;
    dlb_queue_drain(queue);
    do all += found = dlb_queue_take(queue, tokens, 8);
    while (found == 8);
    return all;
}

static atomic_int stop;

static void *keep_busy(void *queue) {
    while (!atomic_load(&stop)) {
        dlb_release(export_to(queue));
        dlb_queue_release(queue, export_to(queue));
        empty(queue);
    }
    return NULL;
}

// The child has none of the other threads, which hold the queue's lock most of the time.
static void test_fork(void) {
    enum { FORKS = 100, THREADS = 2 };
    dlb_queue *queue = dlb_queue_new(NULL, NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, keep_busy, queue) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            // A child that hangs ends by a signal.
            alarm(10);
            empty(queue);
            dlb_release(export_to(queue));
            if (empty(queue) != 1) _exit(1);
            dlb_queue *another = dlb_queue_new(NULL, NULL);
            dlb_queue_close(another);
            dlb_queue_close(queue);
            _exit(0);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    empty(queue);
    dlb_queue_close(queue);
}

static jmp_buf out;
static int wakes;

static int jump(void *context) {
    (void)context;
    wakes++;
    longjmp(out, 1);
}

static void *use(void *queue) {
    dlb_queue_release(queue, export_to(queue));
    CHECK(dlb_queue_pending(queue) == 2);
    return NULL;
}

// It must not; but no lock stays behind.
static void test_jump_out_of_wake(void) {
    dlb_queue *queue = dlb_queue_new(jump, NULL);
    // The jump keeps the caller from being told what the push owned: one reference is lost.
    static dlb_tensor *tensor;
    tensor = export_to(queue);
    if (!setjmp(out)) dlb_release(tensor);
    CHECK(wakes == 1 && dlb_queue_pending(queue) == 1);
    dlb_queue_mute(queue);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use, queue) == 0);
    pthread_join(thread, NULL);
    CHECK(empty(queue) == 2 && empty(queue) == 0 && wakes == 1);
    dlb_queue_close(queue);
}

static atomic_int is_in_wake, may_return, returned;

static int wait_for_it(void *context) {
    (void)context;
    atomic_store(&is_in_wake, 1);
    while (!atomic_load(&may_return)) continue;
    atomic_store(&returned, 1);
    return 0;
}

static void *release_one(void *queue) {
    dlb_release(export_to(queue));
    return NULL;
}

static void *let_it_return(void *context) {
    (void)context;
    usleep(20000);
    atomic_store(&may_return, 1);
    return NULL;
}

// What `wake` uses may be freed once the queue is muted.
static void test_mute_waits_for_wake(void) {
    dlb_queue *queue = dlb_queue_new(wait_for_it, NULL);
    pthread_t waking, other;
    CHECK(pthread_create(&waking, NULL, release_one, queue) == 0);
    while (!atomic_load(&is_in_wake)) continue;
    CHECK(dlb_queue_pending(queue) == 1);
    CHECK(pthread_create(&other, NULL, let_it_return, NULL) == 0);
    dlb_queue_mute(queue);
    CHECK(atomic_load(&returned));
    pthread_join(waking, NULL);
    pthread_join(other, NULL);
    CHECK(empty(queue) == 1);
    dlb_queue_close(queue);
}

static int is_readable(int descriptor) {
    struct pollfd file = {.fd = descriptor, .events = POLLIN};
    CHECK(poll(&file, 1, 0) >= 0);
    return (file.revents & POLLIN) != 0;
}

static void test_descriptor(void) {
    dlb_queue *queue = dlb_queue_new(NULL, NULL);
    int descriptor = -1, again = -1;
    void *token;
    dlb_release(export_to(queue));
    CHECK(dlb_queue_descriptor(queue, &descriptor) == DLB_STATUS_OK && descriptor >= 0);
    CHECK(dlb_queue_descriptor(queue, &again) == DLB_STATUS_OK && again == descriptor);
    CHECK(dlb_queue_descriptor(NULL, &again) == DLB_STATUS_INVALID);
    CHECK(dlb_queue_descriptor(queue, NULL) == DLB_STATUS_INVALID);
    CHECK(is_readable(descriptor) && is_readable(descriptor));
    CHECK(dlb_queue_release(queue, export_to(queue)) == DLB_STATUS_OK);
    CHECK(dlb_queue_take(queue, &token, 1) == 1 && is_readable(descriptor));
    CHECK(dlb_queue_drain(queue) == 1 && is_readable(descriptor));
    CHECK(dlb_queue_take(queue, &token, 1) == 1 && !is_readable(descriptor));
    for (int i = 0; i < 1000; i++) {
        dlb_release(export_to(queue));
        CHECK(is_readable(descriptor) && empty(queue) == 1 && !is_readable(descriptor));
    }
    // A child asks for its own: what it takes is not taken from the parent.
    dlb_release(export_to(queue));
    pid_t child = fork();
    if (child == 0) {
        int own = -1;
        _exit(dlb_queue_descriptor(queue, &own) || !is_readable(own) || empty(queue) != 1 || is_readable(own));
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_readable(descriptor) && empty(queue) == 1 && !is_readable(descriptor));
    dlb_queue_close(queue);
}

int main(void) {
    test_fork();
    test_jump_out_of_wake();
    test_mute_waits_for_wake();
    test_descriptor();
    puts("ok");
    return 0;
}
