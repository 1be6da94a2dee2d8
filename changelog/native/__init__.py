"""All that speaks to C: rows, reader, fold, producer, libpq; and the way without it.

Messages of the stream and ranges of topics come in, records go out, many at a time. Source, sink,
capture and the tasks of replay may import its modules, each of which gives the class in C
(`compiled`) or the one in Python (`plain`): `choice` says which. What is done once a record is in
C: plain functions over memory, called once a batch. The sources are in `src`, and what Python may
call is declared in `src/api.h`. Python decides, C repeats: no rule of the log stands in C alone,
and the tests hold each function to the same rule in Python.
"""
