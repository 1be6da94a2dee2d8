/* What is called of libpq, as its manual declares it. */
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
int PQgetCopyData(PGconn *conn, char **buffer, int async);
int PQputCopyData(PGconn *conn, const char *buffer, int size);
int PQflush(PGconn *conn);
int PQconsumeInput(PGconn *conn);
int PQsocket(const PGconn *conn);
void PQfreemem(void *memory);
char *PQerrorMessage(const PGconn *conn);
PGresult *PQexec(PGconn *conn, const char *query);
PGresult *PQprepare(PGconn *conn, const char *name, const char *query, int count,
                    const unsigned int *types);
PGresult *PQgetResult(PGconn *conn);
int PQresultStatus(const PGresult *result);
char *PQresultErrorField(const PGresult *result, int field);
void PQclear(PGresult *result);
