// Package surprise stands where the table has no row.
package surprise // bad: no row
