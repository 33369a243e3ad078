// What the programs start with: the headers that each of them needs, and a check that ends it.

#include <dlbridge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("line %d: %s (%s)\n", __LINE__, #condition,                 \
                   dlb_last_error());                                          \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
