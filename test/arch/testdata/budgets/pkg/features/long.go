// Package features is part of an example, whose budgets are small: 20 lines a function, 70 a file, 80 a test.
package features

// Allowed has twenty lines.
func Allowed() {
	_ = 2
	_ = 3
	_ = 4
	_ = 5
	_ = 6
	_ = 7
	_ = 8
	_ = 9
	_ = 10
	_ = 11
	_ = 12
	_ = 13
	_ = 14
	_ = 15
	_ = 16
	_ = 17
	_ = 18
	_ = 19
}

// TooLong has one line too many.
func TooLong() { // bad: 21 lines
	_ = 2
	_ = 3
	_ = 4
	_ = 5
	_ = 6
	_ = 7
	_ = 8
	_ = 9
	_ = 10
	_ = 11
	_ = 12
	_ = 13
	_ = 14
	_ = 15
	_ = 16
	_ = 17
	_ = 18
	_ = 19
	_ = 20
}

// Five has as many parameters as are allowed.
func Five(a, b, c, d int, e ...string) {}

// Six has one too many.
func Six(a, b, c, d, e, f int) {} // bad: 6 parameters

type method struct{}

// Seven has one too many.
func (method) Seven(a, b, c int, d, e, f, g string) {} // bad: 7 parameters

// Callback has one too many.
type Callback func(a, b, c, d, e, f int) // bad: 6 parameters

// Door has a method with one too many.
type Door interface {
	// Open has.
	Open(a, b, c, d, e, f int) // bad: 6 parameters
}

func init() {} // bad: an init
