/* The driver's functions of memory: allocations, fills and copies. */

/* Whole pages, so that they can be made inaccessible. What was never written is no zero. */
static int allocate(handle *address, size_t size, int device)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    void *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return OUT_OF_MEMORY;
    memset(start, 0xcd, size);
    struct memory made = {.start = (handle)start, .size = whole, .device = device};
    APPEND(memories, memory_count, made);
    return *address = made.start, OK;
}

static struct memory *allocated(const char *function, handle address)
{
    struct memory *memory = find_memory(address);
    if (!memory || memory->start != address || memory->is_freed)
        end(function, "called with memory that is not allocated", address);
    return memory;
}

int cuMemAlloc_v2(handle *address, size_t size)
{
    ENTER(size, 0, UNSAFE);
    return size ? allocate(address, size, current()) : INVALID_VALUE;
}

/* Waits for all work of the context. */
int cuMemFree_v2(handle address)
{
    ENTER(address, 0, UNSAFE);
    struct memory *memory = allocated(__func__, address);
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at]->device == memory->device)
            run_all(streams[at]);
    memory->is_freed = 1;
    do_work((struct work){.to = (void *)address, .frees = 1});
    return OK;
}

int cuMemAllocAsync(handle *address, size_t size, handle number)
{
    ENTER(size, number, UNSAFE);
    struct stream *stream = find(__func__, number);
    if (!size || stream->capture)
        return size ? UNSUPPORTED : INVALID_VALUE;
    return allocate(address, size, stream->device);
}

int cuMemFreeAsync(handle address, handle number)
{
    ENTER(address, number, UNSAFE);
    struct stream *stream = find(__func__, number);
    struct memory *memory = allocated(__func__, address);
    if (stream->capture) {
        break_capture(stream->capture);
        return INVALID_VALUE;
    }
    memory->is_freed = 1;
    int refused = queue(stream, (struct work){.to = (void *)address, .frees = 1});
    run_frees();
    return refused;
}

int cuMemsetD8Async(handle to, unsigned char byte, size_t size, handle number)
{
    ENTER(to, number, SAFE);
    return queue(find(__func__, number), (struct work){.to = (void *)to, .size = size, .byte = byte});
}

/* What the host gives is read at once, as pageable memory is. */
int cuMemcpyHtoDAsync_v2(handle to, const void *from, size_t size, handle number)
{
    ENTER(to, number, SAFE);
    unsigned char *kept = malloc(size + 1);
    memcpy(kept, from, size);
    return queue(find(__func__, number), (struct work){.to = (void *)to, .from = kept, .size = size});
}

int cuMemcpyDtoDAsync_v2(handle to, handle from, size_t size, handle number)
{
    ENTER(to, number, SAFE);
    return queue(find(__func__, number), (struct work){.to = (void *)to, .from = (void *)from, .size = size});
}

/* Pageable memory is written when this returns. */
int cuMemcpyDtoHAsync_v2(void *to, handle from, size_t size, handle number)
{
    ENTER(from, number, SAFE);
    struct stream *stream = find(__func__, number);
    int refused = queue(stream, (struct work){.to = to, .from = (void *)from, .size = size});
    if (!refused && !stream->capture)
        run_all(stream);
    return refused;
}

/* The device of an address: 1 for 0x7000 to 0x7fff, none below, otherwise that of the allocation, or 0. */
int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
    ENTER(attribute, pointer, ANYWHERE);
    struct memory *memory = find_memory((handle)pointer);
    *(int *)data = memory ? memory->device : pointer < 0x8000;
    return pointer < 0x7000 ? INVALID_VALUE : OK;
}
