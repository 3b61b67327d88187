// Package page is part of an example.
package page

import (
	_ "html/template" // bad: the linker would keep every method
)
