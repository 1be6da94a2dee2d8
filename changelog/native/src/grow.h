/* Arrays that grow. */
#ifndef CHANGELOG_GROW_H
#define CHANGELOG_GROW_H

#include <stdint.h>
#include <stdlib.h>

/* Make room for `wanted` elements in all; gives 0 when there is no memory, and changes nothing. */
static inline int grown(void **array, int64_t *places, int64_t wanted, size_t element)
{
    if (wanted <= *places)
        return 1;
    if (wanted > (int64_t)(PTRDIFF_MAX / 2 / element))
        return 0;
#ifdef GROW_EXACTLY /* so that a sanitizer sees who reads or writes behind the end */
    int64_t places_then = wanted;
#else
    int64_t places_then = *places > 0 ? *places : 64;
    while (places_then < wanted)
        places_then *= 2;
#endif
    void *larger = realloc(*array, (size_t)places_then * element);
    if (larger == NULL)
        return 0;
    *array = larger;
    *places = places_then;
    return 1;
}

#define GROWN(array, places, wanted)                                                               \
    ((wanted) <= (places) || grown((void **)&(array), &(places), (wanted), sizeof *(array)))

#endif
