/* Intrusive doubly linked list with a sentinel. Not thread-safe: the owner's lock covers it.
 * An initialised item that is on no list points at itself, so ps_list_remove() may be called twice. */
#ifndef PS_BASE_LIST_H
#define PS_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

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
