/* Intrusive doubly linked list with a sentinel. Not thread-safe: the owner's lock covers it.
 * An initialised item that is on no list points at itself, so ps_list_remove() may be called twice. */
#ifndef PS_BASE_LIST_H
#define PS_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

struct ps_list {
	struct ps_list *prev, *next;
};

static inline void ps_list_init(struct ps_list *l)
{
	l->prev = l->next = l;
}

static inline bool ps_list_empty(const struct ps_list *l)
{
	return l->next == l;
}

static inline void ps_list_append(struct ps_list *head, struct ps_list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

static inline void ps_list_prepend(struct ps_list *head, struct ps_list *item)
{
	ps_list_append(head->next, item);
}

static inline void ps_list_remove(struct ps_list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	ps_list_init(item);
}

/* Takes the first item off the list, which is not empty. */
static inline struct ps_list *ps_list_take(struct ps_list *head)
{
	struct ps_list *first = head->next;

	ps_list_remove(first);
	return first;
}

/* A loop over the structs `type` whose `member` is on the list. The loop may take `item` off the list, but not
 * the item after it. */
#define PS_LIST_EACH(type, item, head, member)                                     \
	for (type *item = PS_CONTAINER_OF((head)->next, type, member),             \
	          *item##_next = PS_CONTAINER_OF(item->member.next, type, member); \
	        &item->member != (head);                                           \
	        item = item##_next, item##_next = PS_CONTAINER_OF(item->member.next, type, member))

/* Moves all items of `from` to the end of `to`; `from` is empty afterwards. */
static inline void ps_list_splice(struct ps_list *to, struct ps_list *from)
{
	if (ps_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	ps_list_init(from);
}

#endif
