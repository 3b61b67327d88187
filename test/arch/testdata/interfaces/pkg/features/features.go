// Package features is an example.
package features

// Lamp has methods with and without comments.
type Lamp interface {
	// On and Off need one comment.
	On()
	Off()

	Break( /* bad: it has none */ )
	private()
	Lamps
}

// Lamps is embedded.
type Lamps interface{ fmt() }

type hidden interface{ Off() }
