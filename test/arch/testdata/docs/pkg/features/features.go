package features // bad: no package comment

// A is documented.
const A = 1

const B = 2 // trailing comments count

const C = 2

// bad above

// The block of D and E is documented.
const (
	D = iota
	E
)

const (
	// F's comment holds for the lines below it, too.
	F = iota
	G

	H
	// bad above
)

// T is documented, and with it the fields that explain themselves.
type T struct {
	Namespace, Name string

	hidden int
}

// Method is documented.
func (T) Method() {}

func (*T) String() string { return "well known" }

func (*T) Other() {}

// bad above

type hidden struct{ Field int }

func (hidden) Method() {}

func Generic[P any]() {}

// bad above

type U interface {
	// bad above

	// Do is documented.
	Do()

	Undo()
	// bad above
}

var V = 1

// bad above
