-- Two tables to try the project with. Run it in the database that is captured.
CREATE TABLE customers (
    customer_id int PRIMARY KEY,
    name text NOT NULL
);
CREATE TABLE orders (
    order_id int PRIMARY KEY,
    customer_id int NOT NULL REFERENCES customers,
    amount numeric(10, 2) NOT NULL
);
INSERT INTO customers VALUES (1, 'Ann'), (2, 'Ben'), (3, 'Cleo');
INSERT INTO orders VALUES (1, 1, 19.90), (2, 1, 5.00), (3, 2, 120.00);
