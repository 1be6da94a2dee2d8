"""The C library, and all that speaks to C: rows, reader, producer, libpq, librdkafka.

Messages of the stream and ranges of topics come in, records go out, many at a time. Source, sink,
capture and the tasks of replay may import it. What is done once a record is in C: plain functions
over memory, called once a batch. The sources are in `src`, what Python may call is declared in
`src/api.h`, and `library` opens what is compiled from them at installation. Python decides, C
repeats: no rule of the log stands here alone, each function is held by a test to the same rule in
Python.
"""
