package features

// Names is exported, so others could change it.
var Names = []string{"a"}
