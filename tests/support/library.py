"""A library in PostgreSQL, and the documents of its books as pgsync's schema.json describes them.

The description is ours, in the form that pgsync documents: nested objects and lists, tables between
two others, scalars, and each transform.
"""

from __future__ import annotations

from typing import Any

TABLES = """
CREATE TABLE countries (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE cities (id int PRIMARY KEY, name text NOT NULL, country_id int REFERENCES countries);
CREATE TABLE houses (id int PRIMARY KEY, name text NOT NULL, is_active bool NOT NULL);
CREATE TABLE writers (id int PRIMARY KEY, name text NOT NULL, born date,
    city_id int REFERENCES cities);
CREATE TABLE subjects (id int PRIMARY KEY, code text NOT NULL);
CREATE TABLE books (id int PRIMARY KEY, isbn text UNIQUE NOT NULL, title text, about jsonb,
    house_id int REFERENCES houses);
CREATE TABLE book_writers (book_isbn text REFERENCES books (isbn), writer_id int REFERENCES writers,
    PRIMARY KEY (book_isbn, writer_id));
CREATE TABLE book_subjects (book_id int REFERENCES books, subject_id int REFERENCES subjects,
    PRIMARY KEY (book_id, subject_id));
CREATE TABLE ratings (id int PRIMARY KEY, book_id int UNIQUE REFERENCES books, stars int);
CREATE TABLE "order" (id int PRIMARY KEY, book_id int REFERENCES books, price numeric(8, 2));
CREATE TABLE notes (id int PRIMARY KEY, order_id int REFERENCES "order", text text);
"""
ROWS = """
INSERT INTO countries VALUES (1, 'Peru'), (2, 'Chile');
INSERT INTO cities VALUES (1, 'Lima', 1), (2, 'Arica', 2), (3, 'Nowhere', NULL);
INSERT INTO houses VALUES (0, 'Zero', true), (1, 'Norma', true), (2, '', false);
INSERT INTO writers VALUES (1, 'Ana', '1950-02-28', 1), (2, 'Beto', NULL, 2), (3, 'Caro', NULL, 3),
    (4, 'Dora', '2000-12-31', NULL);
INSERT INTO subjects VALUES (1, 'a-b'), (2, 'c-d-e'), (3, 'plain');
INSERT INTO books VALUES
    (1, '00-100', 'One', '{"kind": "novel", "pages": [{"n": 7}]}', 1),
    (2, '00-200', NULL, '{"kind": null}', 2),
    (3, '300', 'It''s "three"', NULL, NULL),
    (4, '400', 'Four', '{}', 0);
INSERT INTO book_writers VALUES ('00-100', 1), ('00-100', 2), ('00-200', 3), ('400', 4), ('400', 1);
INSERT INTO book_subjects VALUES (1, 1), (1, 2), (2, 3);
INSERT INTO ratings VALUES (1, 1, 5), (2, 4, NULL);
INSERT INTO "order" VALUES (1, 1, 9.90), (2, 1, 10), (3, 3, NULL);
INSERT INTO notes VALUES (1, 1, 'first'), (2, 1, 'second'), (3, 3, NULL);
"""
CHANGES = """
UPDATE countries SET name = 'Perú' WHERE id = 1;
UPDATE houses SET is_active = false WHERE id = 1;
DELETE FROM book_writers WHERE writer_id = 2;
INSERT INTO notes VALUES (4, 2, 'late');
UPDATE books SET isbn = '00-300' WHERE id = 3;
DELETE FROM ratings WHERE id = 2;
"""


def _node(table: str, columns: list[str], kind: str, **more: Any) -> dict[str, Any]:
    variant = more.pop("variant", "object")
    through = {"through_tables": [more.pop("through")]} if "through" in more else {}
    relationship = {"variant": variant, "type": kind, **through}
    return {"table": table, "columns": columns, "relationship": relationship, **more}


def schema(database: str, index: str) -> list[dict[str, Any]]:
    """Return the description of an index."""
    country = _node("countries", ["name"], "one_to_one", label="country")
    city = _node("cities", ["id", "name"], "one_to_one", label="city", children=[country])
    notes = _node("notes", ["id", "text"], "one_to_many")
    concat = {
        "columns": ["house_id", "house_name", "is_active", "end"],
        "destination": "line",
        "delimiter": "_",
    }
    house = _node(
        "houses", ["id", "name", "is_active"], "one_to_one", label="house",
        transform={"rename": {"id": "house_id", "name": "house_name"}, "concat": concat},
    )  # fmt: skip
    house["relationship"]["foreign_key"] = {"child": ["id"], "parent": ["house_id"]}
    writers = _node(
        "writers", ["id", "name", "born"], "one_to_many", through="book_writers", children=[city]
    )
    subjects = _node("subjects", ["code"], "one_to_many", variant="scalar", through="book_subjects")
    root = {
        "table": "books",
        "columns": ["id", "isbn", "title", "about->kind", "about->pages->0->n"],
        "transform": {
            "rename": {"id": "book_id"},
            "replace": {"isbn": {"00": "XX"}},
            "mapping": {"book_id": {"type": "long"}, "title": {"type": "keyword"}},
        },
        "children": [
            house,
            writers,
            subjects,
            _node("ratings", ["stars"], "one_to_one", label="rating"),
            _node("order", ["id", "price"], "one_to_many", label="orders", children=[notes]),
        ],
    }
    return [{"database": database, "index": index, "nodes": root}]


ANSWER = """
SELECT jsonb_build_object('book_id', b.id, 'isbn', replace(b.isbn, '00', 'XX'), 'title', b.title,
    'about_kind', b.about ->> 'kind', 'about_pages_0_n', b.about #>> '{pages,0,n}',
    'house', (SELECT jsonb_build_object('house_id', h.id, 'house_name', h.name,
        'is_active', h.is_active, 'line', array_to_string(ARRAY[nullif(h.id, 0)::text,
            nullif(h.name, ''), CASE WHEN h.is_active THEN 'True' END, 'end'], '_'))
        FROM houses h WHERE h.id = b.house_id),
    'writers', (SELECT jsonb_agg(jsonb_build_object('id', w.id, 'name', w.name, 'born', w.born,
        'city', (SELECT jsonb_build_object('id', c.id, 'name', c.name, 'country',
            (SELECT jsonb_build_object('name', n.name) FROM countries n WHERE n.id = c.country_id))
            FROM cities c WHERE c.id = w.city_id)) ORDER BY w.id)
        FROM writers w JOIN book_writers bw ON bw.writer_id = w.id WHERE bw.book_isbn = b.isbn),
    'subjects', (SELECT jsonb_agg(s.code ORDER BY s.id)
        FROM subjects s JOIN book_subjects bs ON bs.subject_id = s.id WHERE bs.book_id = b.id),
    'rating', (SELECT jsonb_build_object('stars', r.stars) FROM ratings r WHERE r.book_id = b.id),
    'orders', (SELECT jsonb_agg(jsonb_build_object('id', o.id, 'price', o.price::text, 'notes',
            (SELECT jsonb_agg(jsonb_build_object('id', t.id, 'text', t.text) ORDER BY t.id)
            FROM notes t WHERE t.order_id = o.id)) ORDER BY o.id)
        FROM "order" o WHERE o.book_id = b.id))
FROM books b ORDER BY b.id
"""
"""PostgreSQL's own documents: written by hand, as a view's sinks render values."""
