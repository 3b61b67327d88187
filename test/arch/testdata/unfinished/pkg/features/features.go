// Package features is part of an example.
package features

/*
A TODOLIST is no mark.
*/
func todo() string {
	return "TODO" // text is not work left over; FIXME bad: this comment is
}
