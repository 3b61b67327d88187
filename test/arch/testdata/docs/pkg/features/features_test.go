package features

func Exported() {}
